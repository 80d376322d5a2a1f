"""From evidence to a diagnosis: pure, without files and without a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lastwords.causes import Cause, Term, all_causes, not_loaded
from lastwords.diagnosis.confidence import CLAIMED, confidence
from lastwords.diagnosis.contradictions import contradictions
from lastwords.diagnosis.model import Diagnosis, Verdict
from lastwords.diagnosis.signature import signature
from lastwords.evidence.model import Evidence

CLOSER_CAUSE = -3.0
"""What a general cause loses where a closer one is sure enough to be claimed."""


def diagnose(evidence: Evidence, causes: Sequence[Cause] | None = None) -> Diagnosis:
    notes = list(not_loaded()) if causes is None else []
    judged = _judge(evidence, all_causes() if causes is None else causes, notes)
    verdicts = _verdicts(evidence, judged, notes)
    ranked = tuple(sorted(verdicts, key=lambda verdict: (-verdict.confidence, verdict.id)))
    return Diagnosis(
        evidence=evidence,
        verdicts=ranked,
        contradictions=tuple(contradictions(evidence)),
        signature=signature(evidence, ranked[0] if ranked else None),
        notes=tuple(notes),
    )


def _judge(
    evidence: Evidence, causes: Iterable[Cause], notes: list[str]
) -> list[tuple[Cause, tuple[Term, ...]]]:
    """A cause that fails is a note for maintainers; the rest go on."""
    judged = ((cause, _terms(evidence, cause, notes)) for cause in causes)
    return [(cause, terms) for cause, terms in judged if terms is not None]


def _terms(evidence: Evidence, cause: Cause, notes: list[str]) -> tuple[Term, ...] | None:
    try:
        return cause.terms(evidence)
    except Exception as error:  # noqa: BLE001 (it may fail in any way, and must not take the others along)
        notes.append(f"{cause.id}: {type(error).__name__}: {error}")
        return None


def _verdicts(
    evidence: Evidence, judged: list[tuple[Cause, tuple[Term, ...]]], notes: list[str]
) -> list[Verdict]:
    """From the closest causes to the most general, so that the latter know what they have to yield to."""
    verdicts: list[Verdict] = []
    for level in sorted({cause.fallback for cause, _ in judged}):
        closer = max(verdicts, key=lambda verdict: verdict.confidence, default=None)
        for cause, terms in judged:
            if cause.fallback == level:
                verdicts.extend(_verdict(evidence, cause, _yielding(terms, closer), notes))
    return verdicts


def _yielding(terms: tuple[Term, ...], closer: Verdict | None) -> tuple[Term, ...]:
    if closer is None or closer.confidence < CLAIMED:
        return terms
    return (*terms, Term(name="closer_cause", weight=CLOSER_CAUSE, text=f"a closer cause fits: {closer.id}"))


def _verdict(evidence: Evidence, cause: Cause, terms: tuple[Term, ...], notes: list[str]) -> list[Verdict]:
    try:
        verdict = Verdict(
            id=cause.id,
            title=cause.title,
            sentence=cause.sentence(evidence),
            confidence=confidence(cause.prior, terms),
            terms=terms,
            facts=cause.facts(evidence),
            steps=tuple(cause.remedy(evidence)),
        )
    except Exception as error:  # noqa: BLE001 (as above)
        notes.append(f"{cause.id}: {type(error).__name__}: {error}")
        return []
    return [verdict]
