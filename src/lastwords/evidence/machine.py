"""The machine around a death, as facts: limits and what was used of them, pressure, space, the kernel's own words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import msgspec

from lastwords.evidence import model, signals
from lastwords.evidence.missing import HOW_IT_ENDED
from lastwords.watch.machine import Machine

LIMITS = (
    "open files",
    "processes",
    "address space",
    "data size",
    "stack size",
    "locked memory",
    "file size",
    "cpu time",
)
"""Those of /proc/PID/limits that processes die of."""
ALWAYS = ("open files", "processes")
KERNEL_LOG = "run it as root, with CAP_SYSLOG, or with `sysctl kernel.dmesg_restrict=0`"
NO_STATUS = "take Linux 6.15 or later, or run it as root and outside of containers"
PRESSURE = "boot with psi=1 (the kernel needs CONFIG_PSI)"
HIDDEN = "run lastwords as the user that the process runs as, or mount /proc without hidepid"
SPACE = "df -h %s, where somebody can wait for the answer"
MEMORY_GROUP = "mount its cgroup where lastwords runs (in a container: read-only /sys/fs/cgroup is enough)"

Counts = tuple[int | None, int | None]


def with_machine(
    evidence: model.Evidence, found: Machine | None, counts: Counts = (None, None)
) -> model.Evidence:
    """`evidence` with the machine, and with what of it could not be read."""
    if found is None:
        return evidence
    machine = facts(found, counts)
    missing = (*_told_better(evidence, found), *_missing(evidence, machine, found))
    return msgspec.structs.replace(evidence, machine=machine, missing=missing)


def _told_better(evidence: model.Evidence, found: Machine) -> Iterator[model.Missing]:
    """`lastwords run` was there, and could not see the end: that it should be used is no advice then."""
    for one in evidence.missing:
        if one.what == HOW_IT_ENDED and found.status_refused:
            yield model.Missing(what=f"{HOW_IT_ENDED}; {found.status_refused}", how_to_collect=NO_STATUS)
        else:
            yield one


def facts(found: Machine, counts: Counts = (None, None)) -> model.Machine:
    return model.Machine(
        memory=model.HostMemory(
            source="/proc/meminfo",
            total=found.memory_total,
            available=found.memory_available,
            swap_free=found.swap_free,
        ),
        memory_groups=tuple(_memory_groups(found)) or None,
        pressure=tuple(
            model.Pressure(
                source=f"/proc/pressure/{one.resource}", resource=one.resource, some=one.some, full=one.full
            )
            for one in found.pressure
        )
        or None,
        cpu=model.CpuTime(
            source="cpu.stat of its cgroup, /proc/stat and /proc/loadavg",
            cpus=found.cpus,
            quota=found.cpu_quota,
            throttled=None if found.throttled is None else round(found.throttled, 4),
            stolen=None if found.stolen is None else round(found.stolen, 4),
            load=found.load,
        ),
        limits=tuple(_limits(found, counts)) or None,
        spaces=tuple(
            model.Space(
                source="statvfs", path=one.path, free=one.free, total=one.total, free_files=one.free_files
            )
            for one in found.spaces
        ),
        kernel_log=_kernel_log(found),
        gpus=_gpus(found),
        place=model.Place(
            source="/proc/PID/cgroup and the environment of `lastwords run`",
            host=found.host,
            cgroup=found.cgroup,
            container=found.container,
            orchestrator=dict(found.orchestrator),
        ),
    )


def _memory_groups(found: Machine) -> Iterator[model.MemoryGroup]:
    for one in found.memory_groups:
        yield model.MemoryGroup(
            source=one.path,
            path=one.path,
            limit=one.limit,
            used=one.used,
            peak=one.peak,
            failures=one.failures,
        )


def _limits(found: Machine, counts: Counts) -> Iterator[model.LimitUse]:
    """Limits that are set, and those that everybody has; with what was used of them where that is known."""
    used = {"open files": counts[0]}
    for name in LIMITS:
        soft, hard = found.limits.get(name, (None, None))
        if soft is not None or (name in ALWAYS and found.limits):
            yield model.LimitUse(
                source="/proc/PID/limits", name=name, used=used.get(name), soft=soft, hard=hard
            )
    if counts[1] is not None:
        yield model.LimitUse(source="/proc/PID/task", name="threads", used=counts[1])
    if found.tasks is not None:
        tasks = found.tasks
        yield model.LimitUse(
            source=f"{tasks.path}/pids.max", name="tasks of its cgroup", used=tasks.used, soft=tasks.limit
        )


def _gpus(found: Machine) -> tuple[model.Gpu, ...] | None:
    if found.gpus is None:
        return None
    return tuple(model.Gpu(source="libnvidia-ml", **asdict(one)) for one in found.gpus)


def _kernel_log(found: Machine) -> tuple[model.KernelLine, ...] | None:
    if found.kernel_lines is None:
        return None
    return tuple(
        model.KernelLine(
            source="/dev/kmsg", kind=one.kind, text=one.text, constraint=one.constraint, cgroup=one.cgroup
        )
        for one in found.kernel_lines
    )


def _missing(evidence: model.Evidence, machine: model.Machine, found: Machine) -> Iterator[model.Missing]:
    """Only what bears on this death: nobody misses the kernel log after an exception."""
    if found.is_hidden:
        yield model.Missing(what="its limits, control groups and memory over time", how_to_collect=HIDDEN)
    for path, kind in found.unknown_spaces:
        what = f"how full {path} is: its file system ({kind}) may never answer, and was not waited for"
        yield model.Missing(what=what, how_to_collect=SPACE % path)
    signal = evidence.status.signal if evidence.status else None
    if signals.family_of(signal) != "kill":
        return
    if machine.kernel_log is None:
        yield model.Missing(
            what=f"what the kernel log says about it ({found.kernel_log_refused})", how_to_collect=KERNEL_LOG
        )
    if machine.memory_groups is None and not found.is_hidden:
        yield model.Missing(what="the memory limit of its control group", how_to_collect=MEMORY_GROUP)
    if machine.pressure is None:
        yield model.Missing(what="pressure on memory, CPU and disks", how_to_collect=PRESSURE)
