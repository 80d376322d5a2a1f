"""Memory: what the job takes against what the machine and every control group around us leave.

The kernel kills without a word when a group's limit is reached, and what it kills is mostly a worker. Batches in
/dev/shm count against the group, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import room, sizes
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Fact, Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.room import MemoryRoom

RESERVE = 0.8
SMALL = 1 << 30
"""What should be left over for a model, data and caches of a job that we know nothing of."""


@dataclass(frozen=True, slots=True)
class Memory:
    rooms: tuple[MemoryRoom, ...]
    """The one that leaves least first."""


def measure(patient: Patient) -> Memory | None:
    del patient
    rooms = tuple(room.memory())
    return Memory(rooms) if rooms else None


def judge(found: Memory, job: Job) -> Iterator[Finding]:
    least = found.rooms[0]
    needed, arithmetic = need(job)
    measured = [_words(one) for one in found.rooms] + arithmetic
    left = least.free - needed
    facts: dict[str, Fact] = {
        "where": least.where,
        "limit": least.limit,
        "free": least.free,
        "needed": needed,
    }
    if job.memory_kills:
        yield Finding(
            severity="kills",
            says=f"{_where(least)} {sizes.words(least.free)}, and the kernel killed the job for it in its first batches",
            measured=tuple(measured),
            fixes=_fixes(least, job, max(needed, least.limit)),
            facts=facts | {"memory_kills": job.memory_kills},
        )
        return
    is_small = job.source != "measured" and left < SMALL
    if needed <= least.free * RESERVE and not is_small:
        yield fine(f"{sizes.words(least.free)} of memory to be had", *measured, **facts)
        return
    yield Finding(
        severity="kills" if left < 0 else "risk",
        says=f"{_where(least)} {sizes.words(least.free)}{_takes(job, needed, left)}",
        measured=tuple(measured),
        fixes=_fixes(least, job, needed),
        facts=facts,
    )


def _where(least: MemoryRoom) -> str:
    if least.where == "this machine":
        return "this machine leaves"
    return f"the memory limit here is {sizes.words(least.limit)} and leaves"


def need(job: Job) -> tuple[int, list[str]]:
    """Bytes, and the arithmetic."""
    main, worker = job.main_bytes or 0, job.worker_bytes or 0
    flight = job.in_flight_bytes if job.workers else 0
    total = main + job.workers * worker + flight
    parts = [
        f"{sizes.words(main)} for the main process" if main else "",
        f"{job.workers} workers × {sizes.words(worker)}" if worker else "",
        f"{sizes.words(flight)} of batches in flight" if flight else "",
    ]
    return total, [f"{' + '.join(filter(None, parts))} = {sizes.words(total)}"] if total else []


def _takes(job: Job, needed: int, left: int) -> str:
    if not needed:
        return " for all that the job does"
    takes = "takes" if job.source == "measured" else "would take"
    after = "" if left < 0 else f": {sizes.words(left)} remain for model, data and caches"
    return f", and the job {takes} {sizes.words(needed)}{after}{job.if_so}"


def _words(one: MemoryRoom) -> str:
    where = "/proc/meminfo" if one.where == "this machine" else one.where
    return f"{sizes.words(one.limit)}, {sizes.words(one.used)} in use, {sizes.words(one.free)} left ({where})"


def _fixes(least: MemoryRoom, job: Job, needed: int) -> tuple[Fix, ...]:
    each = (job.worker_bytes or 0) + job.prefetch * job.batch_bytes
    fixed = (job.main_bytes or 0) + job.held_batches * job.batch_bytes
    fits = int((least.free * RESERVE - fixed) / each) if each else 0
    wanted = max(1, round((needed + (SMALL if job.source != "measured" else 0)) / RESERVE / 1e9 + 0.5))
    is_group = least.where != "this machine"
    more = Fix(
        f"give it {wanted} GB" if is_group else "use a machine with more memory",
        f"docker run --memory={wanted}g …  (Kubernetes: resources.limits.memory: {wanted}G)"
        if is_group
        else None,
    )
    fewer = [Fix(f"or use fewer workers: {fits} fit")] if 0 < fits < job.workers else []
    return (more, *fewer)


CHECK = Check("memory", "memory of the machine and its control groups", measure, judge)
