"""An opinion about a death. It points at the evidence and never changes it."""

from __future__ import annotations

import msgspec

from lastwords.causes import Facts, Step, Term
from lastwords.diagnosis.confidence import CLAIMED, LISTED
from lastwords.evidence.model import Evidence


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One cause, judged."""

    id: str
    title: str
    sentence: str
    confidence: float
    terms: tuple[Term, ...]
    facts: Facts
    steps: tuple[Step, ...]

    @property
    def reasons_for(self) -> tuple[str, ...]:
        return tuple(term.text for term in self.terms if term.weight > 0)

    @property
    def reasons_against(self) -> tuple[str, ...]:
        return tuple(term.text for term in self.terms if term.weight < 0)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    evidence: Evidence
    verdicts: tuple[Verdict, ...]
    """Every cause that there is, the surest first."""
    contradictions: tuple[str, ...]
    signature: str
    notes: tuple[str, ...] = ()
    """For maintainers: what went wrong while judging."""

    @property
    def causes(self) -> tuple[Verdict, ...]:
        """Those worth listing; there is always at least one."""
        listed = tuple(one for one in self.verdicts if one.confidence >= LISTED and one.reasons_for)
        return listed or self.verdicts[:1]

    @property
    def best(self) -> Verdict | None:
        return self.causes[0] if self.causes else None

    @property
    def is_claimed(self) -> bool:
        """Whether a cause is sure enough to be named."""
        return self.best is not None and self.best.confidence >= CLAIMED and self.best.id != "unknown"
