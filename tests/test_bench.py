"""Results on the page of benchmarks: those of one benchmark do not wipe out the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import __main__ as command
from bench.result import Result, merged, paired, table


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


def test_pairs_are_compared_within_themselves() -> None:
    """Moments that are slow for both say nothing, also where there is no middle one."""
    moments = [1.0, 1.1, 40.0, 44.0]
    found = paired("a start", [(1.02 * moment, moment) for moment in moments], "ms", limit=1.01)
    assert round(found.ratio, 6) == 1.02 and not found.ok
    assert found.interval is not None and [round(end, 6) for end in found.interval] == [1.02, 1.02]
    uneven = paired("a start", [(1.0, 1.0), (3.0, 1.5), (1.5, 3.0)], "ms")
    assert uneven.ratio == 1.0 and uneven.interval == (0.5, 2.0)
