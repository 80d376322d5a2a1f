"""Open descriptors against the limit.

With torch's sharing strategy `file_descriptor`, the default on Linux, every tensor that came from a worker holds a
descriptor in the main process for as long as it lives: a loop that keeps its batches in a list ends in "Too many open
files", or in a loader that hangs.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.measured import Trial
from lastwords.prevent.patient import Patient

USUAL = 1024
"""What Linux gives a process that nobody thought about."""
RESERVE = 0.8
KEEPS_ALL = 0.6
ENOUGH_BATCHES = 8


@dataclass(frozen=True, slots=True)
class OpenFiles:
    soft: int | None
    hard: int | None
    """None: unlimited."""
    strategy: str | None
    used: int
    """By the job's busiest process where one was tried, else by us."""
    keeps: float | None = None
    """Part of all batches so far that the loop still had."""
    was_deadly: bool = False
    """The job that was tried died of it."""


def measure(patient: Patient) -> OpenFiles:
    soft, hard = (
        None if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    trial = patient.trial
    if trial is not None:
        every = [one for one in (trial.main, *trial.workers) if one is not None]
        most = max((one.descriptors for one in every), default=0)
        return OpenFiles(soft, hard, None, most, _kept(trial), "too-many-open-files" in trial.causes)
    asked = patient.interpreter
    strategy = asked.torch.sharing_strategy if asked and asked.torch else None
    return OpenFiles(soft, hard, strategy, len(os.listdir("/proc/self/fd")))


def _kept(trial: Trial) -> float | None:
    if not trial.held_batches or not trial.batches or trial.batches < ENOUGH_BATCHES:
        return None
    return trial.held_batches / trial.batches


def judge(found: OpenFiles, job: Job) -> Iterator[Finding]:
    if found.soft is None:
        yield fine("open files are not limited")
        return
    needed, measured = _needed(found, job)
    left = found.soft - needed
    if (found.keeps or 0.0) > KEEPS_ALL and job.batch_tensors:
        yield _leak(found, job, left, measured)
        return
    if needed <= found.soft * RESERVE and found.soft >= USUAL and not found.was_deadly:
        yield fine(f"{found.soft} open files allowed", *measured, soft=found.soft, needed=needed)
        return
    yield Finding(
        severity="kills" if left < 0 or found.was_deadly else "risk",
        says=f"a process may open {found.soft} files{_takes(found, job, needed, left)}",
        measured=tuple(measured),
        fixes=_fixes(found, max(USUAL, needed * 4)),
        facts={"soft": found.soft, "hard": found.hard, "needed": needed, "left": left},
    )


def _leak(found: OpenFiles, job: Job, left: int, measured: list[str]) -> Finding:
    batches = max(0, left) // job.batch_tensors
    return Finding(
        severity="kills",
        says=f"the loop keeps its batches, {job.batch_tensors} descriptors each: after {batches} more there is none left",
        measured=(
            *measured,
            f"{found.keeps or 0:.0%} of all batches so far were still there (/proc/PID/maps)",
        ),
        fixes=(
            Fix("keep copies instead, which hold no descriptor", "kept.append(batch.clone())"),
            *_fixes(found, USUAL * 64),
        ),
        facts={"soft": found.soft, "left": left, "batches_left": batches},
    )


def _takes(found: OpenFiles, job: Job, needed: int, left: int) -> str:
    if found.was_deadly:
        return ", and a process of the job died for want of one in the first batches"
    if not job.workers:
        return f", fewer than the usual {USUAL}" if left >= 0 else f", and the job has {needed}"
    holds = (
        f"; each tensor that the loop keeps takes one, so {max(0, left)} of them end it"
        if _holds(found)
        else ""
    )
    return f", and the loader alone takes {needed} of them{holds}{job.if_so}"


def _needed(found: OpenFiles, job: Job) -> tuple[int, list[str]]:
    measured = [f"soft limit {found.soft}, hard limit {found.hard or 'none'} (getrlimit)"]
    if job.source == "measured":
        measured.append(f"the job's busiest process had {found.used} open")
        return found.used, measured
    own = job.main_descriptors if job.main_descriptors is not None else found.used
    each = job.descriptors_per_worker or 0.0
    tensors = job.in_flight * job.batch_tensors if _holds(found) else 0
    if each:
        measured.append(
            f"measured with a small loader: {own} for itself, {each:g} for each worker; "
            f"{job.in_flight} batches × {job.batch_tensors} tensors = {tensors}"
        )
    return round(own + job.workers * each + tensors), measured


def _holds(found: OpenFiles) -> bool:
    return found.strategy in (None, "file_descriptor")


def _fixes(found: OpenFiles, wanted: int) -> tuple[Fix, ...]:
    can_raise = found.hard is None or (found.soft or 0) < found.hard
    target = wanted * 16 if found.hard is None else min(found.hard, max(wanted, 65536))
    raised = (
        Fix("raise it before the job starts", f"ulimit -n {target}")
        if can_raise
        else Fix(
            "the hard limit must be raised where the job is started", "docker run --ulimit nofile=65536 …"
        )
    )
    other = 'torch.multiprocessing.set_sharing_strategy("file_system")'
    return (raised, Fix("or let tensors be files in /dev/shm instead of descriptors", other))


CHECK = Check("open-files", "open files, and how torch shares tensors", measure, judge)
