"""Swap and overcommit: how the kernel answers when memory runs short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import room, sizes
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.watch.proc import read_number

NEVER = 2
FILE = "/proc/sys/vm/overcommit_memory"


@dataclass(frozen=True, slots=True)
class Overcommit:
    mode: int | None
    swap: int
    room_to_commit: int | None
    """In mode 2: bytes that may still be promised."""


def measure(patient: Patient) -> Overcommit:
    del patient
    found = room.meminfo()
    limit, promised = found.get("CommitLimit"), found.get("Committed_AS")
    left = limit - promised if limit is not None and promised is not None else None
    return Overcommit(read_number(FILE), found.get("SwapTotal", 0), left)


def judge(found: Overcommit, job: Job) -> Iterator[Finding]:
    swap = f"swap {sizes.words(found.swap)}" if found.swap else "no swap"
    measured = (f"overcommit {found.mode} ({FILE}), {swap} (/proc/meminfo)",)
    if found.mode != NEVER or found.room_to_commit is None:
        yield fine(f"memory is promised freely, {swap}", *measured)
        return
    # A forked worker promises all that its parent may write, shared or not.
    needed = (job.main_bytes or 0) * (job.workers + 1)
    is_deadly = needed > found.room_to_commit
    yield Finding(
        severity="kills" if is_deadly else "risk",
        says=(
            f"the kernel promises only {sizes.words(found.room_to_commit)} more (overcommit 2): "
            f'fork() of a large process fails with "Cannot allocate memory" although memory is free'
        ),
        measured=(
            *measured,
            f"{job.workers} forks of {sizes.words(job.main_bytes or 0)}, and itself = {sizes.words(needed)}",
        ),
        fixes=(
            Fix("let it promise freely", "sysctl vm.overcommit_memory=0"),
            Fix("or start workers with spawn, which copies nothing"),
        ),
        facts={"room": found.room_to_commit, "needed": needed},
    )


CHECK = Check("overcommit", "swap and overcommit", measure, judge)
