"""What the control groups of a process allow, and what they had used when it died. Both versions, every level up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from lastwords import _native
from lastwords.watch.proc import read_number, read_text

# No limit is written as `max` in version 2, and in version 1 as the largest number of pages there is.
NO_LIMIT = 1 << 62
MEMORY_FILES: Mapping[int, tuple[str, str, str]] = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"),
    2: ("memory.max", "memory.current", "memory.peak"),
}

Group = tuple[str, int]
"""A directory and the version of its hierarchy."""


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """Bytes. None: cannot be read, or, for the limit, there is none."""

    path: str
    limit: int | None
    used: int | None
    peak: int | None
    failures: int | None
    """How often it was full when somebody asked for more."""


@dataclass(frozen=True, slots=True)
class Throttling:
    path: str
    throttled_ns: int
    quota: float | None
    """CPUs; None: no limit."""


@dataclass(frozen=True, slots=True)
class Tasks:
    path: str
    used: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class Groups:
    """Asked for while the process lives: a dead one is in none."""

    memory: tuple[Group, ...]
    cpu: tuple[Group, ...]
    pids: tuple[Group, ...]


CONTROLLERS = ("memory", "cpu", "pids")


def groups_of(pid: int) -> Groups:
    return Groups(*(tuple(_native.control_groups(pid, name)) for name in CONTROLLERS))


def groups_named(membership: str) -> Groups:
    """Of a process that is gone, by the lines of its /proc/PID/cgroup."""
    return Groups(*(tuple(_native.control_groups_of(membership, name)) for name in CONTROLLERS))


def memory(groups: Groups) -> tuple[MemoryGroup, ...]:
    """Those that can be read, the nearest first."""
    found = (_memory(path, version) for path, version in groups.memory)
    return tuple(one for one in found if one is not None)


def _memory(path: str, version: int) -> MemoryGroup | None:
    limit, used, peak = (read_number(f"{path}/{name}") for name in MEMORY_FILES[version])
    if limit is None and used is None:
        return None
    failures = (
        read_number(f"{path}/memory.failcnt") if version == 1 else keyed(f"{path}/memory.events").get("max")
    )
    return MemoryGroup(path, limit if limit is not None and limit < NO_LIMIT else None, used, peak, failures)


def throttling(groups: Groups) -> Throttling | None:
    """The nearest group that limits the CPU, else the nearest that has been throttled."""
    found = [one for path, version in groups.cpu if (one := _throttling(path, version)) is not None]
    limited = (one for one in found if one.quota is not None or one.throttled_ns)
    return next(limited, found[0] if found else None)


def throttling_of(pid: int) -> Throttling | None:
    """Of the group that it is in now."""
    return throttling(Groups(memory=(), cpu=_cpu_groups(read_text(f"/proc/{pid}/cgroup")), pids=()))


@lru_cache(maxsize=64)
def _cpu_groups(membership: str) -> tuple[Group, ...]:
    """Mostly the same for all workers of a job, which are looked at again and again."""
    return tuple(_native.control_groups_of(membership, "cpu"))


def _throttling(path: str, version: int) -> Throttling | None:
    counts = keyed(f"{path}/cpu.stat")
    if version == 1:
        throttled = counts.get("throttled_time")
        quota, period = read_number(f"{path}/cpu.cfs_quota_us"), read_number(f"{path}/cpu.cfs_period_us")
    else:
        micros = counts.get("throttled_usec")
        throttled = None if micros is None else micros * 1000
        quota, period = _pair(read_text(f"{path}/cpu.max"))
    if throttled is None:
        return None
    return Throttling(path, throttled, quota / period if quota and quota > 0 and period else None)


def _pair(text: str) -> tuple[int | None, int | None]:
    first, _, second = text.strip().partition(" ")
    return int(first) if first.isdecimal() else None, int(second) if second.isdecimal() else None


def tasks(groups: Groups) -> Tasks | None:
    """The group that is nearest to its limit of processes and threads; None: nothing limits them."""
    found = []
    for path, _ in groups.pids:
        limit = read_number(f"{path}/pids.max")
        if limit is not None:
            found.append(Tasks(path, read_number(f"{path}/pids.current"), limit))
    return min(found, key=lambda one: one.limit - (one.used or 0), default=None)


def keyed(path: str) -> dict[str, int]:
    """Files of lines like `oom_kill 3`."""
    pairs = (line.split() for line in read_text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
