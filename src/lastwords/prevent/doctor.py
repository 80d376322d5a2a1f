"""All checks on one patient: findings, the worst first. A check that fails becomes a note, and the rest go on."""

from __future__ import annotations

import msgspec

from lastwords.prevent.checks import Check, all_checks, not_loaded
from lastwords.prevent.finding import WORST_FIRST, Finding
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.sizing import Recommendation

SCHEMA = "lastwords-doctor/1"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the published JSON."""

    schema: str = SCHEMA
    host: str
    job: Job
    findings: tuple[Finding, ...]
    recommended: Recommendation | None = None
    not_checked: tuple[str, ...] = ()
    """What could not be looked at, and why."""

    @property
    def would_kill(self) -> bool:
        return any(finding.severity == "kills" for finding in self.findings)


def examine(patient: Patient, job: Job, host: str) -> Report:
    for check in all_checks():
        if check.begin is not None:
            check.begin(patient)
    findings: list[Finding] = []
    not_checked = list(not_loaded())
    for check in all_checks():
        found = _looked(check, patient, job)
        if isinstance(found, str):
            not_checked.append(found)
        else:
            findings += found
    return Report(
        host=host,
        job=job,
        findings=tuple(sorted(findings, key=lambda one: WORST_FIRST.index(one.severity))),
        recommended=_recommended(patient),
        not_checked=tuple(not_checked),
    )


def _looked(check: Check, patient: Patient, job: Job) -> list[Finding] | str:
    """What it found, or why it could not look."""
    try:
        return _look(check, patient, job)
    except Exception as error:  # noqa: BLE001  # one broken check must not cost the others
        return f"{check.id}: {type(error).__name__}: {error}"


def _look(check: Check, patient: Patient, job: Job) -> list[Finding]:
    measured = check.measure(patient)
    if measured is None:
        return []
    return [msgspec.structs.replace(one, check=check.id) for one in check.judge(measured, job)]


def _recommended(patient: Patient) -> Recommendation | None:
    from lastwords.prevent.checks import pool_size

    return pool_size.recommendation(patient)
