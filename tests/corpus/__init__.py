"""Texts of deaths: our own, in `texts/`, and public logs where they lie beside the checkout (they are not part of this repository).

A file of `texts/` is named for the cause that its texts have; `open.txt` holds those from which nobody could tell,
with the causes that must be among the possible ones. A text begins with a line `=== name | system`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

TEXTS = Path(__file__).parent / "texts"
SHARED = Path(__file__).parents[2].parent / "shared" / "corpus" / "logs.jsonl"

# Causes that a text alone does not tell apart, as those logs group them.
ALIKE = (
    {"null-pointer", "wild-pointer", "native-bug"},
    {"external-kill", "time-limit", "preemption"},
    {"hang", "time-limit", "collective-timeout"},
)


class Case(NamedTuple):
    name: str
    system: str
    expect: tuple[str, ...]
    decidable: bool
    log: str
    decisive: tuple[str, ...] = ()


def own() -> list[Case]:
    return [case for file in sorted(TEXTS.glob("*.txt")) for case in of_file(file.stem)]


def of_file(stem: str) -> list[Case]:
    blocks = (TEXTS / f"{stem}.txt").read_text().split("=== ")[1:]
    return [_case(stem, *block.partition("\n")[::2]) for block in blocks]


def _case(stem: str, head: str, log: str) -> Case:
    name, system, *possible = (part.strip() for part in head.split("|"))
    expect = tuple(possible[0].split()) if stem == "open" and possible else () if stem == "open" else (stem,)
    return Case(f"{stem}/{name}", system, expect, stem != "open", log)


class _Shared(msgspec.Struct):
    id: str
    expect: list[str]
    decidable: bool
    system: str
    log: str
    decisive_lines: list[str] = []


def shared() -> list[Case]:
    """Empty where it is not there."""
    if not SHARED.is_file():
        return []
    found = (msgspec.json.decode(line, type=_Shared) for line in SHARED.read_bytes().splitlines() if line)
    return [
        Case(one.id, one.system, tuple(one.expect), one.decidable, one.log, tuple(one.decisive_lines))
        for one in found
    ]
