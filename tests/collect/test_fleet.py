"""One record for many hosts, as users meet it: jobs that die, a place that comes and goes, and `--from`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords.evidence import sending
from lastwords.evidence.outbox import Outbox
from lastwords.evidence.store import Store
from tests.collect.hosts import dead_mount, death
from tests.watch.running import LASTWORDS, clean_environment, python, run, run_words

pytestmark = pytest.mark.timeout(700)

DIES = python("import ctypes; ctypes.string_at(0)")
LIVES = python("pass")
PATIENCE = 300


def lastwords(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LASTWORDS, "--home", str(home), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=clean_environment(**variables),
    )


def die(home: Path, *options: str, wait: str = "200", **variables: str) -> subprocess.CompletedProcess[str]:
    """A busy machine may take its time to start a sender; users wait for five seconds."""
    done = subprocess.run(
        run_words(home, DIES, *options),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=clean_environment(LASTWORDS_COLLECT_WAIT=wait, **variables),
    )
    assert done.returncode == -11 and "null-pointer" in done.stderr, done.stderr
    return done


def wait_until_sent(home: Path) -> None:
    """A sender goes on when its job has ended."""
    while not Outbox(home).is_empty():
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "deaths"
    found.mkdir()
    return found


def test_the_deaths_of_two_hosts_in_one_list(tmp_path: Path, place: Path):
    ids = []
    for host in ("one", "other"):
        assert "collected" not in die(tmp_path / host, "--collect", str(place)).stderr
        ids += [one.id for one in Store(tmp_path / host).all()]
    listed = lastwords(tmp_path / "third", "list", "--from", str(place), "--json")
    found = json.loads(listed.stdout)
    assert sorted(one["death"]["id"] for one in found) == sorted(ids)
    shown = lastwords(tmp_path / "third", "show", ids[0], "--from", str(place))
    assert shown.returncode == 0 and "null-pointer" in shown.stdout


def test_the_environment_says_it_too(tmp_path: Path, place: Path):
    """And the job is asked for nothing: its own processes are not senders."""
    die(tmp_path / "home", LASTWORDS_COLLECT=str(place))
    assert len(list(place.rglob("*.json"))) == 1


def test_a_place_that_is_away_costs_nothing_and_the_next_job_sends_it(tmp_path: Path):
    home, place = tmp_path / "home", tmp_path / "deaths"
    done = die(home, "--collect", str(place))
    assert f"1 death waits to be collected in {place}: there is no such directory" in done.stderr
    assert "collect --send" in done.stderr.splitlines()[-1]
    place.mkdir()
    healthy = run(home, LIVES, "--collect", str(place))
    assert (healthy.returncode, healthy.stdout, healthy.stderr) == (0, "", "")
    wait_until_sent(home)
    assert len(list(place.rglob("*.json"))) == 1


def test_collect_says_what_waits_and_sends_it(tmp_path: Path, place: Path):
    home, away = tmp_path / "home", tmp_path / "away"
    assert lastwords(home, "collect").stdout == "nothing waits to be sent\n"
    Outbox(home).add(str(place), death())
    Outbox(home).add(str(away), death())
    said = lastwords(home, "collect")
    assert said.returncode == 1 and said.stdout.count("1 death waits to be collected in") == 2
    sent = lastwords(home, "collect", "--send")
    assert sent.returncode == 1
    assert f"sent to {place}: 1" in sent.stdout and f"collected in {away}: there is no such" in sent.stdout
    away.mkdir()
    last = lastwords(home, "collect", "--send", "--json")
    assert last.returncode == 0
    assert [(one["place"], one["sent"], one["waiting"]) for one in json.loads(last.stdout)] != []
    assert {one["place"]: one["sent"] for one in json.loads(last.stdout)}[str(away)] == 1


@pytest.mark.root
def test_a_dead_mount_hangs_neither_the_job_nor_its_end(tmp_path: Path):
    home = tmp_path / "home"
    with dead_mount(tmp_path / "deaths") as place:
        # Were it to wait for the mount, it would wait for ever.
        done = die(home, "--collect", str(place), wait="0.5")
        assert f"1 death waits to be collected in {place}: it has not answered yet" in done.stderr
        # The next job finds somebody hanging there, and does not wait at all.
        healthy = run(home, LIVES, "--collect", str(place))
        assert (healthy.returncode, healthy.stderr) == (0, "")
    assert lastwords(home, "collect", "--send").returncode == 0
    assert len(list((tmp_path / "deaths").rglob("*.json"))) == 1


def test_whoever_interrupts_the_wait_gets_the_job_s_own_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LASTWORDS_COLLECT_WAIT", "1000")
    before = signal.getsignal(signal.SIGTERM)
    # It never delivers anything, and tells us to stop once we wait for it.
    program = f"while ! grep -q 'SigCgt:.*[4-7c-f]...$' /proc/{os.getpid()}/status; do :; done; kill {os.getpid()}; sleep 1000"
    sender = subprocess.Popen(["sh", "-c", program], start_new_session=True)
    try:
        sending._wait(sender)
        assert sender.poll() is None
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        os.killpg(sender.pid, signal.SIGKILL)
        sender.wait()


def test_mistakes_are_one_line(tmp_path: Path, place: Path):
    home = tmp_path / "home"
    missing = lastwords(home, "list", "--from", str(tmp_path / "nowhere"))
    assert missing.returncode == 2 and missing.stdout == ""
    assert re.fullmatch(
        r"lastwords: cannot read deaths from .*/nowhere: there is no such directory · try: .*\n",
        missing.stderr,
    )
    unknown = lastwords(home, "show", "12345678", "--from", str(place))
    assert unknown.returncode == 2 and "is called 12345678 · try: lastwords list --from" in unknown.stderr
    Outbox(home).add(str(place), death())
    lastwords(home, "collect", "--send")
    box = lastwords(home, "show", death().id, "--from", str(place), "--minidump", "x")
    assert box.returncode == 2 and "stays on its host" in box.stderr and "on gpu-07" in box.stderr


def test_hosts_are_named_where_there_are_several(tmp_path: Path, place: Path):
    home = tmp_path / "home"
    for host, pid in (("gpu-07", 1), ("gpu-07", 2), ("gpu-02", 3)):
        Outbox(home).add(str(place), death(host, pid))
    lastwords(home, "collect", "--send")
    said = lastwords(home, "list", "--from", str(place)).stdout
    assert "gpu-02: " in said and "2 on gpu-07, 1 on gpu-02" in said


@pytest.fixture(scope="module")
def object_store() -> Iterator[dict[str, str]]:
    """S3's own protocol, by moto's server: what a client needs to find it."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )  # fmt: skip
    assert server.stderr is not None
    try:
        found = next(filter(None, (re.search(r"Running on (http://\S+)", line) for line in server.stderr)))
        yield {
            "AWS_ENDPOINT_URL": found[1],
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


@pytest.mark.heavy
@pytest.mark.slow
def test_an_object_store(tmp_path: Path, object_store: dict[str, str]):
    url, home = "s3://fleet/jobs/deaths", tmp_path / "home"
    assert f"1 death waits to be collected in {url}" in die(home, "--collect", url, **object_store).stderr
    empty = lastwords(home, "list", "--from", url, **object_store)
    assert empty.returncode == 2 and "no such place" in empty.stderr
    make_bucket = python("import s3fs; s3fs.S3FileSystem().mkdir('fleet')")
    subprocess.run(make_bucket, env=clean_environment(**object_store), check=True, timeout=PATIENCE)
    die(home, "--collect", url, **object_store)
    assert Outbox(home).is_empty()
    found = json.loads(lastwords(tmp_path / "other", "list", "--from", url, "--json", **object_store).stdout)
    assert {one["death"]["id"] for one in found} == {one.id for one in Store(home).all()}
    assert len(found) == 2
    shown = lastwords(
        tmp_path / "other", "show", found[0]["death"]["id"], "--from", url, "--json", **object_store
    )
    assert json.loads(shown.stdout)["causes"][0]["id"] == "null-pointer"
