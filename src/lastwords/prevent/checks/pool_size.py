"""How many workers the job should have, by what its first items took."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import room, sizing
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Fact, Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.sizing import Recommendation


@dataclass(frozen=True, slots=True)
class PoolSize:
    workers: int
    recommended: Recommendation


def measure(patient: Patient) -> PoolSize | None:
    recommended = recommendation(patient)
    if patient.trial is None or recommended is None:
        return None
    return PoolSize(len(patient.trial.workers), recommended)


def recommendation(patient: Patient) -> Recommendation | None:
    if patient.trial is None:
        return None
    return sizing.recommend(patient.trial, _room())


def _room() -> sizing.Room:
    rooms = room.memory()
    return sizing.Room(
        memory=rooms[0].free if rooms else None, shared_memory=_shared_memory(), cpus=room.cpus()[0]
    )


def _shared_memory() -> int | None:
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108  # asked how full it is
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def judge(found: PoolSize, job: Job) -> Iterator[Finding]:
    del job
    best = found.recommended
    facts: dict[str, Fact] = {
        "workers": found.workers,
        "num_workers": best.num_workers,
        "prefetch_factor": best.prefetch_factor,
    }
    if best.num_workers == found.workers:
        yield fine(f"{found.workers} workers are right for this job here", *best.arithmetic, **facts)
        return
    yield Finding(
        severity="slow" if best.num_workers > found.workers else "note",
        says=f"the job has {found.workers} workers, and {best.num_workers} would be right for it",
        fixes=(
            Fix(
                "set it",
                f"DataLoader(…, num_workers={best.num_workers}, prefetch_factor={best.prefetch_factor})",
            ),
        ),
        facts=facts,
    )


CHECK = Check("pool-size", "how many workers", measure, judge)
