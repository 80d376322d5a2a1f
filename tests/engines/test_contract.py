"""The promises of engines/contract.py that hold for every adapter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lastwords.engines.contract import Engine
from tests.engines.victims import deaths

ROOT = Path(__file__).resolve().parents[2]


def test_what_fails_is_off_and_says_so_once(capsys):
    engine = Engine("Bench", tested=("1.0",))
    calls = []

    @engine.guarded
    def adapter(number):
        calls.append(number)
        raise RuntimeError("changed\nsince")

    assert adapter(1) is None and adapter(2) is None
    assert calls == [1], "an adapter that has failed is not called again"
    assert capsys.readouterr().err == (
        "lastwords: Bench: off in this process, and the job goes on without: adapter: RuntimeError: changed since\n"
    )


def test_results_and_interruptions_pass():
    engine = Engine("Bench", tested=())
    assert engine.guarded(lambda: 7)() == 7

    @engine.guarded
    def interrupted():
        raise KeyboardInterrupt

    try:
        interrupted()
    except KeyboardInterrupt:
        assert engine.is_on
    else:
        raise AssertionError("Ctrl-C must reach the job")


def test_untested_versions_warn_once(capsys):
    engine = Engine("Bench", tested=("3.5", "4.3"))
    assert engine.is_tested("4.3.1") and engine.is_tested("3.5")
    assert capsys.readouterr().err == ""
    assert not engine.is_tested("4.30.0") and not engine.is_tested("4.30.0")
    said = "lastwords: Bench 4.30.0 is not among the tested versions (3.5, 4.3): trying\n"
    assert capsys.readouterr().err == said


def test_a_closed_log_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    engine = Engine("Bench", tested=())
    engine.off("no reason")
    assert engine.guarded(lambda: "called")() is None


def cells() -> list[tuple[str, str]]:
    """Folder and test of each cell of the table in docs/engines/README.md."""
    text = (ROOT / "docs" / "engines" / "README.md").read_text()
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    head = next(row for row in rows if "`spark/`" in row[0])
    folders = [re.findall(r"`(\w+)/`", title)[0] for title in head]
    tests = [row[1:] for row in rows if len(row) == len(folders) + 1 and row[1].startswith("`test_")]
    assert len(tests) == 9, "eight ways to end, and a host without lastwords"
    return [(folder, cell.strip("`")) for row in tests for folder, cell in zip(folders, row, strict=True)]


@pytest.mark.parametrize(("folder", "test"), cells())
def test_each_ending_on_each_engine_has_the_test_that_the_table_names(folder: str, test: str):
    name, _, case = test.partition("[")
    sources = [file.read_text() for file in (ROOT / "tests" / "engines" / folder).glob("test_*.py")]
    assert any(f"def {name}(" in source for source in sources), test
    case = case.rstrip("]")
    assert not case or case in deaths.ENDINGS or any(f'"{case}"' in source for source in sources), test
