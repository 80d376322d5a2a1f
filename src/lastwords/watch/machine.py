"""The machine around a process: what it may use, asked while it lives, and what was left when it died.

Each answer can be missing (no root, a sandbox, another kernel), and then it is None or empty; nothing here raises.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lastwords.watch import cgroups, spaces
from lastwords.watch.gpu import Gpu
from lastwords.watch.kernel_log import KernelLine, KernelLog
from lastwords.watch.proc import is_dying, parent_of, read_text
from lastwords.watch.spaces import Space

RESOURCES = ("memory", "cpu", "io")
# Values of these are shown; of all others not even the names are looked at.
ENVIRONMENT = frozenset(
    {
        "AWS_BATCH_JOB_ATTEMPT",
        "AWS_BATCH_JOB_ID",
        "BATCH_TASK_INDEX",
        "CLOUD_RUN_EXECUTION",
        "JOB_COMPLETION_INDEX",
        "KUBERNETES_PORT",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
        "LSB_JOBID",
        "PBS_JOBID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_JOB_END_TIME",
        "SLURM_JOB_ID",
        "SLURM_JOB_PARTITION",
        "SLURM_NODEID",
        "SLURM_PROCID",
        "SLURM_RESTART_COUNT",
        "SLURM_STEP_ID",
    }
)
LONGEST_VALUE = 200
_LIMIT = re.compile(r"Max (.+?) {2,}(\S+) +(\S+)")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_PRESSURE = re.compile(r"(some|full) avg10=([\d.]+) avg60=([\d.]+)")


@dataclass(frozen=True, slots=True)
class Beginning:
    """What can be learnt of a process only while it lives."""

    time_ns: int
    groups: cgroups.Groups
    limits: Mapping[str, tuple[int | None, int | None]]
    """Soft and hard, by the kernel's own names; None: unlimited."""
    working_directory: str | None
    cgroup: str | None
    throttled_ns: int | None
    is_hidden: bool = False
    """It lives, and /proc does not show it to us."""
    parent_threads: int | None = None
    """How many its parent had then: whatever lock another of them held at the fork stays locked here."""
    is_late: bool = False
    """It had ended when it was asked, and was in no group any more, or seemed to be in the root's."""
    ticks: tuple[int, int] | None = None
    """Of all CPUs together since the machine began: all, and those that its host took away."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """Per cent of the last ten seconds in which some, or all, tasks waited for the resource."""

    resource: str
    some: float
    full: float | None


@dataclass(frozen=True, slots=True)
class Machine:
    memory_groups: tuple[cgroups.MemoryGroup, ...] = ()
    memory_total: int | None = None
    memory_available: int | None = None
    swap_free: int | None = None
    pressure: tuple[Pressure, ...] = ()
    throttled: float | None = None
    """Part of the process's life in which its group was not let run."""
    stolen: float | None = None
    """Part of the CPU time since then that the host of this virtual machine took."""
    cpu_quota: float | None = None
    cpus: int | None = None
    load: float | None = None
    limits: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    tasks: cgroups.Tasks | None = None
    spaces: tuple[Space, ...] = ()
    unknown_spaces: tuple[tuple[str, str], ...] = ()
    """Places of which nobody could say how full they are, with the kind of their file system."""
    kernel_lines: tuple[KernelLine, ...] | None = None
    kernel_log_refused: str | None = None
    status_refused: str | None = None
    """Why nobody could be asked how it ended; None: somebody could."""
    is_hidden: bool = False
    gpus: tuple[Gpu, ...] | None = None
    """Asked for when the death is explained; None: there is no driver that could be asked."""
    host: str | None = None
    cgroup: str | None = None
    container: str | None = None
    orchestrator: Mapping[str, str] = field(default_factory=dict)


def begin(pid: int) -> Beginning:
    groups = cgroups.groups_of(pid)
    throttling = cgroups.throttling(groups)
    directory, allowed = None, limits(read_text(f"/proc/{pid}/limits"))
    cgroup = cgroup_path(read_text(f"/proc/{pid}/cgroup"))
    with contextlib.suppress(OSError):
        directory = os.readlink(f"/proc/{pid}/cwd")
    return Beginning(
        time_ns=time.monotonic_ns(),
        groups=groups,
        limits=allowed,
        working_directory=directory,
        cgroup=cgroup,
        throttled_ns=throttling.throttled_ns if throttling is not None else None,
        is_hidden=not allowed and _lives(pid),
        parent_threads=_threads(parent_of(pid)),
        is_late=cgroup is None or (cgroup == "/" and is_dying(pid)),
        ticks=_ticks(),
    )


def _threads(pid: int | None) -> int | None:
    """The links of a directory of directories: two of its own, and one for each in it."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2 if pid else None
    return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def as_born(beginning: Beginning | None, membership: str, born_ns: int) -> Beginning:
    """Where its own box says that it was, for one that had ended before we could look, or of which nobody told us."""
    if beginning is not None and not beginning.is_late:
        return beginning
    groups, cgroup = cgroups.groups_named(membership), cgroup_path(membership)
    if beginning is not None:
        return replace(beginning, groups=groups, cgroup=cgroup, throttled_ns=None)
    return Beginning(
        time_ns=born_ns,
        groups=groups,
        limits={},
        working_directory=None,
        cgroup=cgroup,
        throttled_ns=None,
        is_late=True,
    )


def moved(beginning: Beginning | None, groups: Iterable[tuple[str, int, int]]) -> Beginning | None:
    """The process was put into other memory groups after it had begun."""
    if beginning is None:
        return None
    memory = tuple((path, version) for path, version, _ in groups)
    return replace(beginning, groups=replace(beginning.groups, memory=memory))


def look(pid: int, beginning: Beginning, log: KernelLog | None, status_refused: str | None = None) -> Machine:
    """The machine now, right after the process has died, or while it hangs (the kernel says nothing of that)."""
    memory, throttling = _meminfo(), cgroups.throttling(beginning.groups)
    container = _CONTAINER.search(beginning.cgroup or "")
    room = spaces.look(_places(beginning.working_directory))
    return Machine(
        memory_groups=cgroups.memory(beginning.groups),
        memory_total=memory.get("MemTotal"),
        memory_available=memory.get("MemAvailable"),
        swap_free=memory.get("SwapFree") if memory.get("SwapTotal") else None,
        pressure=tuple(filter(None, map(_pressure, RESOURCES))),
        throttled=_share(beginning, throttling),
        stolen=stolen(beginning.ticks, _ticks()),
        cpu_quota=throttling.quota if throttling is not None else None,
        cpus=len(os.sched_getaffinity(0)),
        load=_load(),
        limits=beginning.limits,
        tasks=cgroups.tasks(beginning.groups),
        spaces=room.found,
        unknown_spaces=room.unknown,
        kernel_lines=log.about(pid) if log is not None else None,
        kernel_log_refused=log.refused if log is not None else None,
        status_refused=status_refused,
        is_hidden=beginning.is_hidden,
        host=socket.gethostname(),
        cgroup=beginning.cgroup,
        container=container[0] if container else None,
        orchestrator=orchestrator(os.environ),
    )


def limits(text: str) -> dict[str, tuple[int | None, int | None]]:
    """/proc/PID/limits, e.g. `Max open files  1024  4096  files`."""
    found = (_LIMIT.match(line) for line in text.splitlines())
    return {one[1]: (_limit(one[2]), _limit(one[3])) for one in found if one}


def _limit(word: str) -> int | None:
    return int(word) if word.isdecimal() else None


def cgroup_path(text: str) -> str | None:
    """The group to name: that of the memory controller, else that of version 2, else any that is not the root."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    memory = [path for _, controllers, path in rows if "memory" in controllers.split(",")]
    unified = [path for _, controllers, path in rows if not controllers]
    every = [*memory, *unified, *(path for _, _, path in rows)]
    return next((path for path in every if path != "/"), every[0] if every else None)


def orchestrator(environment: Mapping[str, str]) -> dict[str, str]:
    """Only names that are known to hold no secret."""
    return {name: environment[name][:LONGEST_VALUE] for name in sorted(ENVIRONMENT & environment.keys())}


def _meminfo() -> dict[str, int]:
    words = (line.split() for line in read_text("/proc/meminfo").splitlines())
    return {one[0].rstrip(":"): int(one[1]) << 10 for one in words if len(one) > 1 and one[1].isdecimal()}


def _pressure(resource: str) -> Pressure | None:
    found = {one[1]: float(one[2]) for one in _PRESSURE.finditer(read_text(f"/proc/pressure/{resource}"))}
    return Pressure(resource, found["some"], found.get("full")) if "some" in found else None


def _share(beginning: Beginning, now: cgroups.Throttling | None) -> float | None:
    passed = time.monotonic_ns() - beginning.time_ns
    if now is None or beginning.throttled_ns is None or passed <= 0:
        return None
    return min(1.0, max(0, now.throttled_ns - beginning.throttled_ns) / passed)


def _ticks() -> tuple[int, int] | None:
    """The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, and guests in user."""
    words = read_text("/proc/stat").partition("\n")[0].split()[1:9]
    if len(words) < 8 or not all(map(str.isdecimal, words)):
        return None
    return sum(map(int, words)), int(words[7])


def stolen(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[0] <= before[0]:
        return None
    return min(1.0, max(0, now[1] - before[1]) / (now[0] - before[0]))


def _load() -> float | None:
    with contextlib.suppress(OSError):
        return os.getloadavg()[0]
    return None


def _places(working_directory: str | None) -> list[str]:
    """Where a job is likely to write."""
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # asked how full it is, nothing is put there
    return list(dict.fromkeys(filter(None, ("/dev/shm", temporary, working_directory))))  # noqa: S108
