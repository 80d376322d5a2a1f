"""How well texts are explained: the first cause right, or an honest answer where nobody could tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lastwords.diagnosis import Diagnosis, diagnose
from lastwords.evidence.text import from_text
from tests.corpus import ALIKE, Case

SURE = 0.5


def is_right(case: Case, diagnosis: Diagnosis) -> bool:
    best = diagnosis.best
    if best is None:
        return False
    alike = {other for group in ALIKE if group & set(case.expect) for other in group}
    return best.id in case.expect or best.id in alike


def is_honest(case: Case, diagnosis: Diagnosis) -> bool:
    """No cause above one half, the true one among those listed, and a next step."""
    listed = {verdict.id for verdict in diagnosis.causes}
    surest = max(verdict.confidence for verdict in diagnosis.causes)
    is_listed = not case.expect or bool(listed & set(case.expect))
    return surest <= SURE and is_listed and bool(diagnosis.evidence.missing)


def explained(log: str) -> Diagnosis:
    return diagnose(from_text(log))


def failures(cases: Iterable[Case], change: Callable[[Case], str] = lambda case: case.log) -> list[str]:
    """One line for each case that is not explained as it should be."""
    wrong = []
    for case in cases:
        diagnosis = explained(change(case))
        judged = is_right if case.decidable else is_honest
        if not judged(case, diagnosis):
            found = ", ".join(f"{one.id} {one.confidence:.2f}" for one in diagnosis.causes[:4])
            wrong.append(f"{case.name}: expected {' or '.join(case.expect) or 'no claim'}, found {found}")
    return wrong
