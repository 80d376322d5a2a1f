"""What a check says: one sentence, what was measured, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["kills", "risk", "slow", "note", "fine"]
WORST_FIRST: tuple[Severity, ...] = ("kills", "risk", "slow", "note", "fine")


Fact = int | float | str | bool | tuple[str, ...] | None


class Fix(msgspec.Struct, frozen=True):
    text: str
    command: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the published JSON."""

    severity: Severity
    says: str
    measured: tuple[str, ...] = ()
    """Each with where it was read."""
    fixes: tuple[Fix, ...] = ()
    facts: dict[str, Fact] = {}  # msgspec copies it
    check: str = ""


def fine(says: str, *measured: str, **facts: Fact) -> Finding:
    return Finding(severity="fine", says=says, measured=measured, facts=facts)


def note(says: str, *measured: str, **facts: Fact) -> Finding:
    return Finding(severity="note", says=says, measured=measured, facts=facts)
