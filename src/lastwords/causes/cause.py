"""What a cause is: a named reason for a death, with everything the rest of the house needs to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from lastwords.evidence.model import Evidence

SIGNAL_FITS = "signal_fits"
PLACE_KNOWN = "place_known"
SAID_ELSEWHERE = (SIGNAL_FITS, PLACE_KNOWN)
"""Names of reasons that count, but that a report has said already, in its headline and its line about the place."""

Facts = dict[str, str | int | float | bool | None]


class Reason(NamedTuple):
    """One thing that speaks for or against. How much it weighs stands in the cause's `weights`."""

    name: str
    text: str


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A reason, weighed: `weight` in log-odds, above zero for, below zero against."""

    name: str
    weight: float
    text: str


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to do. `command` is exact: to be copied and run as it stands."""

    text: str
    command: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cause:
    """`judge` gives every reason that it sees, for and against, so that "why not?" has an answer too.

    All functions are pure, and must bear any field of the evidence being None.
    """

    id: str
    title: str
    doc: str
    needs: tuple[str, ...]
    """Fields of Evidence that decide it."""
    prior: float
    """Log-odds before anything is known."""
    weights: Mapping[str, float]
    judge: Callable[[Evidence], Iterable[Reason]]
    sentence: Callable[[Evidence], str]
    """The one sentence that a reader gets first."""
    facts: Callable[[Evidence], Facts]
    remedy: Callable[[Evidence], Iterable[Step]]
    zoo: tuple[str, ...]
    """Deaths that this cause must explain."""
    near_misses: tuple[str, ...]
    """Deaths that look alike and that it must not claim."""
    fallback: int = 0
    """0: says exactly what happened. Higher: yields to a surer cause with a lower number."""

    def terms(self, evidence: Evidence) -> tuple[Term, ...]:
        return tuple(
            Term(name=reason.name, weight=self.weights[reason.name], text=reason.text)
            for reason in self.judge(evidence)
        )
