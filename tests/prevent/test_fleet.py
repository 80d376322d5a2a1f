"""Hosts' facts: probed here, read from files that anybody may have written, and left behind by recorded jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lastwords.commands._group import group
from lastwords.prevent import fleet
from lastwords.prevent.scan_model import Library
from lastwords.record import host
from tests.watch.running import clean_environment, python, run

OLD = fleet.Host(host="old", features=("sse4_2", "avx"), cpu_model="Xeon E5-2650 v2")
NEW = fleet.Host(host="new", features=("sse4_2", "avx", "avx2", "fma", "abm"))
HNSW = Library(path="/env/hnswlib.so", package="hnswlib", version="0.8", needs=("avx2", "fma", "lzcnt"))


def lastwords(home: Path, *words: str):
    return CliRunner().invoke(group, ["--home", str(home), *words], prog_name="lastwords")


def written(path: Path, *hosts: fleet.Host) -> Path:
    path.write_bytes(b"\n".join(msgspec.json.encode(one) for one in hosts))
    return path


def test_the_probe_of_this_host_is_read_back(tmp_path):
    said = lastwords(tmp_path, "fleet", "probe")
    assert said.exit_code == 0
    (tmp_path / "here.json").write_text(said.stdout)
    (here,) = fleet.load([tmp_path / "here.json"])
    assert here.host == os.uname().nodename
    assert set(here.features) == fleet.this_cpu()
    assert here.cpus == os.cpu_count()
    assert here.schema == "lastwords-host/1"


def test_the_probe_tells_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    said = lastwords(tmp_path, "fleet", "probe").stdout
    assert "hunter2" not in said
    assert set(json.loads(said)) == {field.name for field in msgspec.structs.fields(fleet.Host)}


def test_one_object_an_array_and_lines(tmp_path):
    written(tmp_path / "lines.json", OLD, NEW)
    (tmp_path / "array.json").write_bytes(msgspec.json.encode([OLD, NEW]))
    for path in ("lines.json", "array.json"):
        assert [one.host for one in fleet.load([tmp_path / path])] == ["new", "old"]
    assert [one.host for one in fleet.load([tmp_path])] == ["new", "old"]
    assert [one.host for one in fleet.load([str(tmp_path / "*.json")])] == ["new", "old"]


def test_pretty_printed_probes_in_a_row(tmp_path):
    (tmp_path / "all.json").write_text(fleet.to_json(OLD) + fleet.to_json(NEW))
    assert [one.host for one in fleet.load([tmp_path / "all.json"])] == ["new", "old"]


def test_the_newest_probe_of_a_host_counts(tmp_path):
    newer = msgspec.structs.replace(OLD, time=20, features=("avx512f",))
    written(tmp_path / "a.json", newer)
    written(tmp_path / "b.json", msgspec.structs.replace(OLD, time=10))
    assert fleet.load([tmp_path])[0].features == ("avx512f",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not what"),
        ("{", "not what"),
        ("[1]", "not what"),
        ('{"host": 7}', "not what"),
        ('{"host": "a", "schema": "lastwords/1"}', "schema"),
        ('{"features": []}', "not what"),
        ("[" * 100_000, "not what"),
        ("\0\x7fELF", "not what"),
    ],
)
def test_a_file_that_is_none(tmp_path, content, said):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(fleet.UnreadableHosts) as caught:
        fleet.load([tmp_path / "bad.json"])
    assert said in caught.value.reason
    shown = lastwords(tmp_path, "fleet", "list", str(tmp_path / "bad.json"))
    assert shown.exit_code == 2
    assert len(shown.stderr.splitlines()) == 1


def test_what_is_not_there(tmp_path):
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "*.json"):
        with pytest.raises(fleet.UnreadableHosts, match="lastwords fleet probe"):
            fleet.load([path])


def test_a_file_that_is_too_large(tmp_path):
    with open(tmp_path / "big.json", "wb") as file:
        file.truncate(fleet.LARGEST_FILE + 1)
    with pytest.raises(fleet.UnreadableHosts, match="16 MB"):
        fleet.load([tmp_path / "big.json"])


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("hosts") / "any.json"
    path.write_bytes(data)
    try:
        fleet.load([path])
    except fleet.UnreadableHosts:
        pass


def test_which_library_runs_where():
    (placed,) = fleet.place([HNSW], [OLD, NEW])
    assert placed.runs_on == ("new",)
    assert placed.dies_on == (("old", ("abm", "avx2", "fma")),)


def test_a_build_that_its_package_does_not_choose_there_harms_nobody():
    avx512 = Library(path="/env/_swigfaiss_avx512.so", package="faiss-cpu", needs=("avx512f", "avx512bw"))
    assert OLD.lacks(avx512) == ()
    assert fleet.Host(host="knl", features=("avx512f",)).lacks(avx512) == ("avx512bw",)


def test_another_architecture_runs_nothing():
    arm = fleet.Host(host="arm", architecture="aarch64", features=("asimd",))
    assert arm.lacks(HNSW) == ("x86_64",)
    assert not OLD.lacks(Library(path="plain.so", needs=("sse2",)))


class TestTheViewGrows:
    def test_a_run_leaves_its_host(self, tmp_path):
        home = tmp_path / "home"
        assert lastwords(home, "fleet", "list").stdout.startswith("no hosts known here yet")
        assert run(home, python("pass")).returncode == 0
        shown = lastwords(home, "fleet", "list")
        assert shown.exit_code == 0
        assert os.uname().nodename in shown.stdout
        (known,) = json.loads(lastwords(home, "fleet", "list", "--json").stdout)
        assert set(known["features"]) == set(host.facts()["features"])

    def test_enable_leaves_its_host(self, tmp_path):
        code = "import lastwords; assert lastwords.enable()"
        environment = clean_environment(LASTWORDS_HOME=str(tmp_path))
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        (path,) = (tmp_path / "hosts").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        assert fleet.load([path])[0].host == os.uname().nodename

    def test_a_fresh_one_is_left_alone_and_an_old_one_is_not(self, tmp_path):
        assert host.remember(str(tmp_path))
        (path,) = (tmp_path / "hosts").iterdir()
        path.write_text("mine")
        assert host.remember(str(tmp_path))
        assert path.read_text() == "mine"
        long_ago = time.time() - 2 * host.FRESH_SECONDS
        os.utime(path, (long_ago, long_ago))
        assert host.remember(str(tmp_path))
        assert json.loads(path.read_text())["host"] == os.uname().nodename

    def test_a_home_that_cannot_be_written_harms_nobody(self, tmp_path):
        (tmp_path / "hosts").write_text("a file")
        assert not host.remember(str(tmp_path))


def test_terminal_escapes_of_a_stranger_s_file_are_shown_as_such(tmp_path):
    path = written(tmp_path / "evil.json", fleet.Host(host="\x1b[31mred", cpu_model="x\ny"))
    shown = lastwords(tmp_path, "fleet", "list", str(path)).stdout
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2
