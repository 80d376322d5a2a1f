"""Results on the page of benchmarks: those of one benchmark do not wipe out the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import __main__ as command
from bench.result import Result, merged, table


def result(name: str, ours: float) -> Result:
    return Result(name=name, ours=ours, peer=2, unit="ms")


def test_rows_of_the_same_name_are_replaced_and_new_ones_come_last() -> None:
    before = table([result("a start (10 runs)", 1), result("a death", 1)])
    after = merged(before, [result("an item", 3), result("a start (800 runs)", 4)])
    assert after == table([result("a start (800 runs)", 4), result("a death", 1), result("an item", 3)])


def test_the_page_keeps_what_was_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "machine", lambda: "here")
    page.write_text(f"before\n{command.BEGIN}\n{command.END}\nafter\n")
    command.write([result("a start", 1), result("a death", 1)], [])
    for ours in (5, 6):
        command.write([result("a death", ours)], ["watch"])
    rows = table([result("a start", 1), result("a death", 6)])
    expected = f"{command.BEGIN}\n{rows}\n\nhere\n\nwatch: here\n{command.END}"
    assert page.read_text() == f"before\n{expected}\nafter\n"
    command.write([result("a start", 1)], [])
    assert "a death" not in page.read_text() and "watch" not in page.read_text()
