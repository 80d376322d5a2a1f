"""Processes and threads against pids.max and RLIMIT_NPROC.

Every worker brings the thread pools of its libraries: "can't start new thread" and "Resource temporarily unavailable"
come long before anybody thinks of a limit.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.watch import cgroups

RESERVE = 0.8


@dataclass(frozen=True, slots=True)
class Tasks:
    limit: int | None
    used: int
    where: str
    threads_per_worker: int
    threads_of_main: int


def measure(patient: Patient) -> Tasks:
    limit, used, where = _tightest()
    asked = patient.interpreter if patient.trial is None else None
    loader = asked.torch.loader if asked and asked.torch else None
    main = asked.threads if asked else 1
    return Tasks(limit, used, where, loader.worker_threads if loader else 1, main)


def _tightest() -> tuple[int | None, int, str]:
    group = cgroups.tasks(cgroups.groups_of(os.getpid()))
    found = [(group.limit, group.used or 0, f"{group.path}/pids.max")] if group is not None else []
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    # The kernel does not count root's.
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        found.append((soft, _own_tasks(), "RLIMIT_NPROC (getrlimit)"))
    least = min(found, key=lambda one: one[0] - one[1], default=None)
    return least if least is not None else (None, 0, "")


def _own_tasks() -> int:
    """Threads of all processes of this user."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def judge(found: Tasks, job: Job) -> Iterator[Finding]:
    if found.limit is None:
        yield fine("processes and threads are not limited")
        return
    needed = job.threads or found.threads_of_main + job.workers * found.threads_per_worker
    left = found.limit - found.used
    measured = (
        f"{found.used} of {found.limit} in use ({found.where})",
        f"the job had {needed} threads"
        if job.threads
        else f"{found.threads_of_main} threads + {job.workers} workers × {found.threads_per_worker} = {needed}",
    )
    if needed <= left * RESERVE:
        yield fine(f"{left} more processes and threads allowed", *measured, left=left, needed=needed)
        return
    yield Finding(
        severity="kills" if needed > left else "risk",
        says=f"{left} more processes and threads are allowed here, and the job has {needed}{job.if_so}",
        measured=measured,
        fixes=(
            Fix("raise the limit", f"docker run --pids-limit={max(4096, needed * 4)} …"),
            Fix("or let each worker have one thread", "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"),
        ),
        facts={"left": left, "needed": needed},
    )


CHECK = Check("task-limit", "processes and threads", measure, judge)
