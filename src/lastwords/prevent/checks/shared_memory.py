"""Shared memory (/dev/shm) against what the batches in flight need.

torch hands every batch over in shared memory. A container gets 64 MB of it unless told otherwise, and a batch that does
not fit is a bus error or "unable to allocate shared memory" in a worker, in the middle of an epoch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import sizes
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient

PLACE = "/dev/shm"  # noqa: S108  # asked how full it is
RESERVE = 0.8
"""More than this part of it in use by design is too near."""


FULL = 0.95


@dataclass(frozen=True, slots=True)
class SharedMemory:
    free: int | None
    """None: there is no such place."""
    total: int
    strategy: str | None
    was_used: int | None
    """By the job that was tried, at most."""
    was_deadly: bool = False
    """The job that was tried died of it."""


def measure(patient: Patient) -> SharedMemory:
    asked = patient.interpreter if patient.trial is None else None
    strategy = asked.torch.sharing_strategy if asked and asked.torch else None
    peak = patient.trial.shared_memory_peak if patient.trial else None
    was_deadly = patient.trial is not None and "shared-memory-full" in patient.trial.causes
    try:
        found = os.statvfs(PLACE)
    except OSError:
        return SharedMemory(None, 0, strategy, peak, was_deadly)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return SharedMemory(free, total, strategy, peak, was_deadly)


def judge(found: SharedMemory, job: Job) -> Iterator[Finding]:
    if found.free is None:
        yield Finding(
            severity="kills" if job.workers else "risk",
            says=f"there is no {PLACE}: workers cannot hand over a batch",
            fixes=(Fix("mount one", f"mount -t tmpfs -o size=8g tmpfs {PLACE}"),),
        )
        return
    needed = max(job.in_flight_bytes if job.workers else 0, found.was_used or 0)
    measured = [f"{PLACE}: {sizes.words(found.free)} free of {sizes.words(found.total)} (statvfs)"]
    if job.workers and job.batch_bytes:
        measured.append(
            f"{job.workers} workers × {job.prefetch} batches ahead + {job.held_batches} in the loop = {job.in_flight} "
            f"batches × {sizes.words(job.batch_bytes)} = {sizes.words(job.in_flight_bytes)}"
        )
    if found.was_deadly:
        measured.append("a process of the job died of it in the first batches")
    if found.was_used:
        measured.append(f"the job had {sizes.words(found.was_used)} in it at once")
    if needed <= found.free * RESERVE and not found.was_deadly:
        yield fine(f"{PLACE} has {sizes.words(found.free)} free", *measured, free=found.free, needed=needed)
        return
    # A job that has filled it cannot show how much more it would have taken.
    is_deadly = found.was_deadly or needed > found.free or (found.was_used or 0) >= found.free * FULL
    verb = "need" if job.source == "measured" else "would need"
    need = f"{verb} {sizes.words(needed)}{job.if_so}" if needed > found.free * RESERVE else "filled it"
    yield Finding(
        severity="kills" if is_deadly else "risk",
        says=f"{PLACE} has {sizes.words(found.free)}, and the batches in flight {need}",
        measured=tuple(measured),
        fixes=_fixes(found, job, max(needed, found.total)),
        facts={"free": found.free, "total": found.total, "needed": needed},
    )


def _fixes(found: SharedMemory, job: Job, needed: int) -> tuple[Fix, ...]:
    wanted = max(1, -(-int(needed / RESERVE) // 10**9))
    fits = int((found.free or 0) * RESERVE / job.batch_bytes) - job.held_batches if job.batch_bytes else 0
    fixes = [
        Fix("give the container more", f"docker run --shm-size={wanted}g …"),
        Fix(
            "in Kubernetes, mount an emptyDir with `medium: Memory` at /dev/shm (it counts against the memory limit)"
        ),
    ]
    if 0 < fits < job.workers * job.prefetch:
        fixes.append(Fix(f"or have at most {fits} batches ahead: num_workers × prefetch_factor ≤ {fits}"))
    return tuple(fixes)


CHECK = Check("shared-memory", "shared memory for the batches", measure, judge)
