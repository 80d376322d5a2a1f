"""`lastwords.require`: a host that cannot do the job says so before the first item, in one sentence.

Standard library and, where it loads, the native module for CPUID: this runs inside jobs.
"""

from __future__ import annotations

import os
import resource

from lastwords.prevent import features, sizes
from lastwords.record import host


class Unfit(RuntimeError):
    """This host cannot do what the job requires. `problems` has one sentence for each thing."""

    def __init__(self, problems: list[str]) -> None:
        cpu = host.cpuinfo().get("model name")
        name = os.uname().nodename + (f" ({cpu})" if cpu else "")
        super().__init__(f"this host cannot run this job: {name}: {'; '.join(problems)}")
        self.problems = problems


def require(
    *cpu: str,
    shm: str | float | None = None,
    open_files: int | None = None,
    memory: str | float | None = None,
    disk: str | float | None = None,
    cpus: float | None = None,
) -> None:
    """Raises Unfit, with everything that is missing, unless this host has it all.

    `cpu` are features as in /proc/cpuinfo, or levels (`x86-64-v3`). `shm` and `memory` are free bytes of /dev/shm
    and of what the control groups allow, `disk` free bytes where the job runs, `open_files` the soft limit,
    `cpus` those that this process may use. A name or size that makes no sense raises ValueError.
    """
    problems = [
        *_cpu(cpu),
        *_shared_memory(shm),
        *_open_files(open_files),
        *_memory(memory),
        *_disk(disk),
        *_cpus(cpus),
    ]
    if problems:
        raise Unfit(problems)


def usable_features() -> frozenset[str]:
    """Of the CPU and of the system. Under an emulator /proc/cpuinfo is the real host's, and CPUID is right."""
    return usable(_told_by_kernel(), answered_features())


def usable(listed: frozenset[str], answered: frozenset[str] | None) -> frozenset[str]:
    """Of what the CPU can be asked about, its own answer; of the rest, the kernel's list."""
    if answered is None:
        return listed
    asked = frozenset(features.known()) - features.baseline(os.uname().machine)
    return (listed - asked) | answered


def answered_features() -> frozenset[str] | None:
    """What the CPU itself says that it has, and that is switched on; None: nobody could ask."""
    try:
        from lastwords import _native
    except ImportError:  # it is for another CPU, or not there: the kernel's list has to do
        return None
    found = _native.cpu_features()
    return None if found is None else frozenset(found)


def _told_by_kernel() -> frozenset[str]:
    found = host.cpuinfo()
    return frozenset((found.get("flags") or found.get("Features") or "").split())


def _cpu(names: tuple[str, ...]) -> list[str]:
    wanted = features.expand(names)
    if not wanted:
        return []
    have = usable_features() | features.baseline(os.uname().machine)
    missing = sorted(wanted - have)
    return [f"its CPU has no {', no '.join(missing)}"] if missing else []


def _shared_memory(wanted: str | float | None) -> list[str]:
    fix = "docker run --shm-size, or an emptyDir with medium: Memory"
    return [] if wanted is None else _free("/dev/shm", sizes.parse(wanted), fix)  # noqa: S108  # asked how full it is


def _disk(wanted: str | float | None) -> list[str]:
    return [] if wanted is None else _free(os.getcwd(), sizes.parse(wanted), "")


def _free(path: str, wanted: int, fix: str) -> list[str]:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    free = found.f_bavail * found.f_frsize
    if free >= wanted:
        return []
    hint = f" ({fix})" if fix else ""
    return [f"{path} has {sizes.words(free)} free of the {sizes.words(wanted)} required{hint}"]


def _open_files(wanted: int | None) -> list[str]:
    if wanted is None:
        return []
    number = int(sizes.number(wanted))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return []
    enough = hard == resource.RLIM_INFINITY or hard >= number
    fix = (
        f"ulimit -n {number}" if enough else f"the hard limit is {hard}: whoever starts the job must raise it"
    )
    return [f"it may open {soft} files of the {number} required ({fix})"]


def _memory(wanted: str | float | None) -> list[str]:
    if wanted is None:
        return []
    from lastwords.prevent import room

    number, rooms = sizes.parse(wanted), room.memory()
    if not rooms or rooms[0].free >= number:
        return []
    least = rooms[0]
    return [f"{least.where} has {sizes.words(least.free)} of the {sizes.words(number)} of memory required"]


def _cpus(wanted: float | None) -> list[str]:
    if wanted is None:
        return []
    from lastwords.prevent import room

    number, (have, where) = sizes.number(wanted), room.cpus()
    return [] if have >= number else [f"{where} are {have:g} of the {number:g} required"]
