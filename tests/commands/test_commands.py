"""The command line as its users meet it: words, exit status, and nothing but one line for a mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from lastwords.commands._group import group
from lastwords.evidence import Item, room
from lastwords.evidence.store import Store
from tests.cases import evidence_of


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def lastwords(*words: str, home: Path | None = None, stdin: str | None = None) -> Result:
    at = ["--home", str(home)] if home else []
    result = CliRunner().invoke(
        group, [*at, *words], prog_name="lastwords", env={"COLUMNS": "80"}, input=stdin
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def keep(home: Path, name: str, **changes) -> str:
    return Store(home).put(msgspec.structs.replace(evidence_of(name, death=""), **changes)).id


def commands() -> list[str]:
    return group.list_commands(click.Context(group))


def test_the_commands_are_the_files():
    assert {"demo", "explain", "list", "run", "show"} <= set(commands())
    assert not [name for name in commands() if name.startswith("_")]


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_an_example(name: str):
    result = lastwords(name, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"lastwords {name}" in result.stdout.split("Example", 1)[1]


def test_help_and_version():
    assert "Why did my Python worker die?" in lastwords("--help").stdout
    assert lastwords("--version").stdout.startswith("lastwords ")


def test_an_unknown_command_is_wrong_use():
    assert lastwords("resurrect").exit_code == 2


class TestExplain:
    def test_a_death_by_its_short_id(self, home: Path):
        death = keep(home, "null-dereference")
        result = lastwords("explain", death[:5], home=home)
        assert result.exit_code == 0
        assert "null-pointer" in result.stdout
        assert "\x1b" not in result.stdout

    def test_json(self, home: Path):
        death = keep(home, "null-dereference")
        found = json.loads(lastwords("explain", death, "--json", home=home).stdout)
        assert found["causes"][0]["id"] == "null-pointer"
        assert found["death"]["id"] == death

    @pytest.mark.parametrize(("code", "signal"), [("132", "SIGILL"), ("139", "SIGSEGV"), ("-9", "SIGKILL")])
    def test_an_exit_code_alone_is_bad_news_and_says_so(self, code: str, signal: str):
        result = lastwords("explain", "--exit-code", code)
        assert result.exit_code == 1
        assert signal in result.stdout
        assert "lastwords run" in result.stdout or "dmesg" in result.stdout
        assert "lastwords show" not in result.stdout

    def test_a_signal_alone(self):
        result = lastwords("explain", "--signal", "term")
        assert result.exit_code == 0
        assert "external-kill" in result.stdout

    def test_why_not(self, home: Path):
        death = keep(home, "null-dereference")
        result = lastwords("explain", death, "--why-not", "external-kill", home=home)
        assert result.exit_code == 0
        assert "against  it died of SIGSEGV" in result.stdout

    def test_why_not_in_json(self, home: Path):
        death = keep(home, "abort")
        result = lastwords("explain", death, "--why-not", "null-pointer", "--json", home=home)
        assert json.loads(result.stdout)["id"] == "null-pointer"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ([], "nothing to explain"),
            (["--signal", "SIGTERM", "--exit-code", "3"], "give one"),
            (["--signal", "SIGNOPE"], "there is no signal called SIGNOPE"),
            (["abcd1234"], "no death here is called abcd1234"),
            (["train.log"], "there is no file train.log, and no death here is called so"),
            (["/"], "/ is a directory: give the logs in it, of one death"),
            (["--exit-code", "139", "--why-not", "bad-luck"], "there is no cause called bad-luck"),
        ],
    )
    def test_wrong_use_is_one_clear_line(self, home: Path, words: list[str], said: str):
        result = lastwords("explain", *words, home=home)
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stderr.startswith("lastwords: ")
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""

    @pytest.mark.parametrize("content", [b"", b"\x7fELF\x02", b"Segmentation fault\n" * 100, bytes(4096)])
    def test_a_file_that_is_no_box(self, tmp_path: Path, content: bytes):
        (tmp_path / "x.box").write_bytes(content)
        result = lastwords("explain", str(tmp_path / "x.box"))
        assert result.exit_code == 2
        assert result.stderr.startswith("lastwords: not a lastwords black box: ")
        assert len(result.stderr.splitlines()) == 1

    def test_several_targets_are_put_together(self, home: Path, tmp_path: Path):
        death = keep(home, "null-dereference")
        (tmp_path / "job.log").write_text("worker 3 lost\n")
        words = ("explain", death, str(tmp_path / "job.log"), death, "--json")
        found = json.loads(lastwords(*words, home=home).stdout)
        assert found["death"]["id"] == death

    def test_html_is_written_beside_the_panel(self, home: Path, tmp_path: Path):
        death = keep(home, "null-dereference")
        page = tmp_path / "death.html"
        result = lastwords("explain", death, "--html", str(page), home=home)
        assert result.exit_code == 0 and "✗" in result.stdout
        assert page.read_text().startswith("<!doctype html>") and page.stat().st_mode & 0o777 == 0o600
        assert [path.name for path in tmp_path.iterdir() if "html" in path.name] == ["death.html"]

    def test_html_that_cannot_be_written_is_one_clear_line(self, home: Path, tmp_path: Path):
        death = keep(home, "null-dereference")
        result = lastwords("explain", death, "--html", str(tmp_path / "no" / "x.html"), home=home)
        assert result.exit_code == 2 and "cannot write" in result.stderr

    def test_an_archive_says_what_to_type(self, tmp_path: Path):
        packed = tmp_path / "my job.zst"
        packed.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(32))
        result = lastwords("explain", str(packed))
        assert result.exit_code == 2 and result.stderr == (
            f"lastwords: cannot read {packed}: it is compressed by zstd, which is not unpacked here"
            f" · try: zstdcat '{packed}' | lastwords explain -\n"
        )

    def test_a_log_is_explained(self, tmp_path: Path):
        (tmp_path / "job.log").write_text("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)")
        result = lastwords("explain", str(tmp_path / "job.log"))
        assert result.exit_code == 0
        assert "gpu-out-of-memory" in result.stdout
        assert "job.log, line 1" in result.stdout

    def test_a_log_that_leaves_it_open_ends_with_1(self, tmp_path: Path):
        (tmp_path / "job.log").write_text(
            "RuntimeError: DataLoader worker (pid 1) is killed by signal: Killed."
        )
        result = lastwords("explain", "--json", str(tmp_path / "job.log"))
        assert result.exit_code == 1
        found = json.loads(result.stdout)
        assert {"out-of-memory", "external-kill"} <= {cause["id"] for cause in found["causes"]}
        assert all(cause["confidence"] < 0.5 for cause in found["causes"])
        assert found["missing"]

    @pytest.mark.parametrize("text", ["", "all is well\n" * 10])
    def test_text_without_a_death_is_not_enough_evidence(self, text: str):
        result = lastwords("explain", "-", stdin=text)
        assert result.exit_code == 1
        assert "not enough evidence" in result.stdout

    def test_json_is_utf8_whatever_the_terminal_is(self, home: Path):
        death = keep(home, "abort", item=Item(source="test", key="数据/5"))
        done = subprocess.run(
            [sys.executable, "-m", "lastwords", "--home", str(home), "explain", death, "--json"],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            check=True,
        )
        assert json.loads(done.stdout.decode())["death"]["item"]["key"] == "数据/5"

    def test_commands_to_type_next_name_the_home_that_was_given(self, home: Path):
        death = keep(home, "abort")
        shown = lastwords("explain", death, home=home).stdout
        assert f"lastwords --home {home} show {death} --json > death.json" in shown

    def test_a_directory(self, tmp_path: Path):
        result = lastwords("explain", str(tmp_path))
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1

    def test_a_name_with_control_characters_is_shown_without_them(self, home: Path):
        assert "\x1b" not in lastwords("explain", "\x1b[31mabc", home=home).stderr


class TestShowAndList:
    def test_show_tells_everything(self, home: Path):
        death = keep(home, "null-dereference")
        result = lastwords("show", death, home=home)
        assert result.exit_code == 0
        for title in ("native stack", "Python stack", "registers", "signature", "causes"):
            assert f"\n  {title}\n" in result.stdout

    def test_show_json_is_explain_json(self, home: Path):
        death = keep(home, "wild-pointer")
        shown = lastwords("show", death, "--json", home=home).stdout
        assert shown == lastwords("explain", death, "--json", home=home).stdout

    def test_an_ambiguous_id_lists_the_candidates(self, home: Path):
        for name in ("aaaa1111", "aaaa2222"):
            place = Store(home).directory / name
            place.mkdir(parents=True)
            (place / "evidence.json").write_bytes(msgspec.json.encode(evidence_of("abort")))
        result = lastwords("show", "aaaa", home=home)
        assert result.exit_code == 2
        assert "aaaa1111, aaaa2222" in result.stderr

    def test_list_groups_by_signature(self, home: Path):
        for number in range(3):
            keep(home, "abort", time=float(number))
        keep(home, "wild-pointer")
        result = lastwords("list", home=home)
        assert result.exit_code == 0
        shown = result.stdout.replace("\u00a0", " ")
        assert "(3 times, " in shown
        assert "(once, " in shown

    def test_list_json_is_an_array_newest_first(self, home: Path):
        keep(home, "abort", time=1.0)
        keep(home, "wild-pointer", time=2.0)
        found = json.loads(lastwords("list", "--json", home=home).stdout)
        assert [one["causes"][0]["id"] for one in found] == ["wild-pointer", "native-abort"]

    def test_an_empty_home(self, home: Path):
        assert "Nothing has died here" in lastwords("list", home=home).stdout
        assert json.loads(lastwords("list", "--json", home=home).stdout) == []

    def test_a_torn_entry_is_one_note_and_no_failure(self, home: Path):
        death = keep(home, "abort")
        (home / "deaths" / "ffff0000").mkdir()
        (home / "deaths" / "ffff0000" / "evidence.json").write_text("{")
        result = lastwords("list", home=home)
        assert result.exit_code == 0
        assert death in result.stdout
        assert "ffff0000" in result.stderr


def test_home_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LASTWORDS_HOME", str(tmp_path / "here"))
    death = keep(tmp_path / "here", "abort")
    assert death in lastwords("list").stdout


def test_the_option_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LASTWORDS_HOME", str(tmp_path / "here"))
    death = keep(tmp_path / "there", "abort")
    assert death in lastwords("list", home=tmp_path / "there").stdout


def test_a_job_is_started_without_rich_msgspec_and_click():
    """`lastwords run` starts jobs: it must not make them wait for a renderer."""
    code = (
        "import sys, lastwords.commands._job;print(sorted(set(sys.modules) & {'rich', 'msgspec', 'click'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "lastwords", "explain", "--exit-code", "139"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "SIGSEGV" in done.stdout


def test_list_and_show_say_what_went_for_want_of_room(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(room.VARIABLE, "20")
    ids = [keep(home, "abort", time=float(number)) for number in range(30)]
    listed = lastwords("list", home=home)
    assert listed.exit_code == 0
    assert f"{30 - len(Store(home).all())} older deaths were removed to make room" in listed.stderr
    shown = lastwords("show", ids[0], home=home)
    assert shown.exit_code == 2
    assert "removed to make room, it may be one of them" in shown.stderr
    assert "removed" not in lastwords("show", ids[-1], home=home).output
