"""Installed libraries that need a CPU which this is not: `lastwords scan`, in one line each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.scan_model import Library

MOST_NAMED = 5


def measure(patient: Patient) -> tuple[Library, ...] | None:
    scan = patient.begin_scan()
    return tuple(scan.result()) if scan is not None else None


def judge(found: Sequence[Library], job: Job) -> Iterator[Finding]:
    del job
    dead = [library for library in found if library.verdict == "will-crash"]
    doubtful = [library for library in found if library.verdict == "may-crash"]
    if dead:
        yield _bad("kills", dead, "will crash on this CPU")
    if doubtful:
        yield _bad("risk", doubtful, "may crash on this CPU")
    if not dead and not doubtful:
        yield fine(
            f"all {len(found)} native libraries run on this CPU", "lastwords scan", libraries=len(found)
        )


def _bad(severity: str, libraries: Sequence[Library], what: str) -> Finding:
    names = sorted({library.package or os.path.basename(library.path) for library in libraries})
    shown = ", ".join(names[:MOST_NAMED]) + (
        f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )
    lines = tuple(
        f"{os.path.basename(library.path)} lacks {', '.join(library.missing)}: {library.why}"
        for library in libraries[:MOST_NAMED]
    )
    return Finding(
        severity="kills" if severity == "kills" else "risk",
        says=f"{shown} {what}",
        measured=lines,
        fixes=(
            Fix("see all of it", "lastwords scan"),
            Fix("keep the job off such hosts", "lastwords scan --emit k8s   # or spark, ray, slurm, nomad"),
        ),
        facts={"packages": tuple(names)},
    )


CHECK = Check("libraries", "installed libraries against this CPU", measure, judge, Patient.begin_scan)
