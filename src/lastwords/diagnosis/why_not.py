"""Why is it not that cause? Answered from the very terms that decided."""

from __future__ import annotations

import msgspec

from lastwords.causes import Term, cause_named
from lastwords.diagnosis.confidence import CLAIMED
from lastwords.diagnosis.model import Diagnosis


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    confidence: float
    is_best: bool
    """It is that cause, after all."""
    terms: tuple[Term, ...]
    """The heaviest against first, then those for."""
    not_collected: tuple[str, ...]
    """Facts that decide it, and that nobody has."""

    @property
    def is_claimed(self) -> bool:
        return self.confidence >= CLAIMED


def why_not(diagnosis: Diagnosis, name: str) -> WhyNot | None:
    """None if there is no such cause."""
    cause = cause_named(name)
    verdict = next((one for one in diagnosis.verdicts if one.id == name), None)
    if cause is None or verdict is None:
        return None
    return WhyNot(
        id=name,
        title=verdict.title,
        confidence=verdict.confidence,
        is_best=diagnosis.best is not None and diagnosis.best.id == name,
        terms=tuple(sorted(verdict.terms, key=lambda term: term.weight)),
        not_collected=tuple(need for need in cause.needs if getattr(diagnosis.evidence, need) is None),
    )
