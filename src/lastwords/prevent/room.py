"""What is left for this process: memory and CPUs, of the machine and of every control group around it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lastwords.watch import cgroups
from lastwords.watch.cgroups import Groups
from lastwords.watch.proc import read_text


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """Bytes."""

    where: str
    """`this machine`, or the directory of a control group."""
    limit: int
    used: int
    """Without what the kernel gives back when it is asked to: file pages that nobody touched lately."""

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


def meminfo() -> dict[str, int]:
    """Bytes, by the kernel's names."""
    words = (line.split() for line in read_text("/proc/meminfo").splitlines())
    return {one[0].rstrip(":"): int(one[1]) << 10 for one in words if len(one) > 1 and one[1].isdecimal()}


def memory(pid: int | None = None) -> list[MemoryRoom]:
    """The machine and every group with a limit; the one that leaves least comes first."""
    rooms = [*_machine(), *_groups(pid or os.getpid())]
    return sorted(rooms, key=lambda room: room.free)


def _machine() -> list[MemoryRoom]:
    found = meminfo()
    total, available = found.get("MemTotal"), found.get("MemAvailable")
    if total is None or available is None:
        return []
    return [MemoryRoom("this machine", total, total - available)]


def _groups(pid: int) -> list[MemoryRoom]:
    versions = dict(cgroups.groups_of(pid).memory)
    found = cgroups.memory(cgroups.groups_of(pid))
    return [
        MemoryRoom(group.path, group.limit, max(0, (group.used or 0) - _reclaimable(group.path, versions)))
        for group in found
        if group.limit is not None
    ]


def _reclaimable(path: str, versions: dict[str, int]) -> int:
    name = "total_inactive_file" if versions.get(path) == 1 else "inactive_file"
    return cgroups.keyed(f"{path}/memory.stat").get(name, 0)


def cpus(pid: int | None = None) -> tuple[float, str]:
    """How many CPUs this process may use, and what says so."""
    allowed = (float(len(os.sched_getaffinity(pid or 0))), "the CPUs that it may run on")
    return min([allowed, *_quotas(pid or os.getpid())])


def _quotas(pid: int) -> list[tuple[float, str]]:
    every = cgroups.groups_of(pid).cpu
    found = (cgroups.throttling(Groups(memory=(), cpu=(group,), pids=())) for group in every)
    return [(one.quota, f"the CPU quota of {one.path}") for one in found if one is not None and one.quota]
