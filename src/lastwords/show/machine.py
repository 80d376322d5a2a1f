"""What the watcher saw, for `lastwords show`: where a hanging process stands, its memory, the machine at its death."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.evidence.frames import short_function
from lastwords.evidence.model import (
    Evidence,
    Gpu,
    Growth,
    Hang,
    HungThread,
    LimitUse,
    Machine,
    Memory,
    MemoryGroup,
)
from lastwords.show.lines import Line, line
from lastwords.show.quantities import duration, size

MOST_THREADS = 16
MOST_FUNCTIONS = 3
STATES = {"R": "runs", "S": "sleeps", "D": "sleeps uninterruptibly", "T": "is stopped", "t": "is traced"}
LEVELS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 48
AT_ONCE = 64 << 20
"""What an item takes beyond this is worth a word."""


def hang(evidence: Evidence) -> Iterator[Line]:
    found = evidence.hang
    if found is None:
        return
    yield line(f"{duration(found.seconds)} on one item; {duration(found.limit)} are allowed", label="time")
    yield line(_standing(found), label="main thread")
    if found.lock is not None:
        yield line(_lock(found), label="lock")
    elif found.waits_for is not None:
        yield line(found.waits_for, label="lock")
    if found.parent_threads is not None and found.parent_threads > 1:
        yield line(f"{found.parent_threads} threads when it forked this process", label="its parent")
    if found.others:
        yield line(
            f"{found.alike or 0} of {found.others} other workers hang in the same call", label="others"
        )
    if found.ran is not None and found.waited is not None:
        yield line(
            f"ran {found.ran:.0%} of one CPU, waited {found.waited:.0%} of the time for one{_kept(found)}",
            label="CPU",
        )
    for thread in found.threads[:MOST_THREADS]:
        yield line(_thread(thread), label=f"{thread.tid}", depth=1)


def _kept(found: Hang) -> str:
    if not found.throttled:
        return ""
    quota = f", which may use {found.quota:g} CPUs," if found.quota is not None else ""
    return f"; its group{quota} was not let run {found.throttled:.0%} of it"


def _standing(found: Hang) -> str:
    state = STATES.get(found.state or "", found.state or "in an unknown state")
    call = f", in {found.blocked_in}" if found.blocked_in not in (None, "running") else ""
    what = f" on {found.blocked_on}" if call and found.blocked_on else ""
    what += f", {found.file_system} at {found.mount}" if what and found.mount else ""
    channel = f" ({found.wait_channel} in the kernel)" if found.wait_channel else ""
    return f"{state}{call}{what}{channel}"


def _lock(found: Hang) -> str:
    assert found.lock is not None
    if found.lock.owner is None:
        return "a mutex that nobody holds"
    where = "a thread of this process" if found.lock.owner_is_here else "no thread of this process"
    return f"a mutex held by thread {found.lock.owner}, {where}"


def _thread(thread: HungThread) -> str:
    names = [short_function(frame.function) for frame in thread.frames if frame.function][:MOST_FUNCTIONS]
    call = thread.blocked_in or STATES.get(thread.state or "", "?")
    return " ← ".join([f"{thread.name or ''} {call}".strip(), *names])


def memory(evidence: Evidence) -> Iterator[Line]:
    found = evidence.memory
    if found is None:
        return
    if found.resident is not None:
        peak = f", at most {size(found.peak)}" if found.peak is not None else ""
        yield line(f"{size(found.resident)} resident{peak}", label="memory")
    if found.curve:
        yield line(_curve(found), label="over time")
    if found.per_item is not None and found.items is not None:
        yield line(f"{size(found.per_item)} more per item, over {found.items} items", label="growth")
    if found.on_item is not None:
        yield line(f"{size(found.on_item)} since it began", label="last item")
    for one in evidence.growth or ():
        yield line(_growth(one), label=f"{one.name} grew")


def _growth(found: Growth) -> str:
    is_memory = "memory" in found.name
    each = size(int(found.per_item)) if is_memory else f"{found.per_item:.1f}"
    limit = (size(found.limit) if is_memory else str(found.limit)) if found.limit is not None else None
    left = f", {duration(found.seconds_left)} from {limit}" if found.seconds_left is not None else ""
    alike = f", {found.alike} siblings do the same" if found.alike else ""
    soon = f": the next in {duration(found.next_death)}" if found.next_death is not None else ""
    return f"{each} per item over {found.items} items{left}{alike}{soon}"


def at_once(found: Memory) -> str | None:
    """`took 3.2 GB on this item`, where that is more than the items before it took."""
    if found.on_item is None or found.on_item < max(AT_ONCE, 8 * (found.per_item or 0)):
        return None
    return f"took {size(found.on_item)} on this item"


def _curve(found: Memory) -> str:
    """The curve as bars, in steps of equal time, the end at the right."""
    points = found.curve or ()
    span, top = points[0].seconds_before, max(point.resident for point in points) or 1
    levels = []
    for place in range(CURVE_WIDTH):
        before = span * (1 - (place + 1) / CURVE_WIDTH)
        value = next(
            (one.resident for one in reversed(points) if one.seconds_before >= before), points[0].resident
        )
        levels.append(LEVELS[min(len(LEVELS) - 1, value * len(LEVELS) // (top + 1))])
    return f"{''.join(levels)} {duration(span)}"


def machine(evidence: Evidence) -> Iterator[Line]:
    found = evidence.machine
    if found is None:
        return
    for kernel in found.kernel_log or ():
        yield line(kernel.text, label="kernel log")
    yield from _memory(found)
    for pressure in found.pressure or ():
        full = f", all tasks {pressure.full:.0f} %" if pressure.full is not None else ""
        yield line(
            f"some tasks waited {pressure.some:.0f} % of ten seconds{full}",
            label=f"{pressure.resource} pressure",
        )
    yield from _cpu(found)
    for gpu in found.gpus or ():
        yield line(_gpu(gpu), label=f"GPU {gpu.index}")
    for limit in found.limits or ():
        if limit.used is not None or limit.soft is not None:
            yield line(_limit(limit), label=limit.name)
    for space in found.spaces or ():
        yield line(f"{size(space.free)} free of {size(space.total)}", label=space.path)
    yield from _place(found)


def _memory(found: Machine) -> Iterator[Line]:
    host = found.memory
    if host is not None and host.total is not None and host.available is not None:
        yield line(f"{size(host.available)} available of {size(host.total)}", label="memory")
    for group in found.memory_groups or ():
        yield line(_group(group), label=group.path)


def _group(group: MemoryGroup) -> str:
    limit = f" of {size(group.limit)}" if group.limit is not None else ", no limit"
    peak = f", at most {size(group.peak)}" if group.peak is not None else ""
    failures = f", full {group.failures} times" if group.failures else ""
    return f"{size(group.used) if group.used is not None else '?'}{limit}{peak}{failures}"


def _cpu(found: Machine) -> Iterator[Line]:
    cpu = found.cpu
    if cpu is None:
        return
    quota = f", its group may use {cpu.quota:.1f}" if cpu.quota is not None else ""
    throttled = f", not let run {cpu.throttled:.0%} of its life" if cpu.throttled else ""
    stolen = f", {cpu.stolen:.0%} taken by the host" if cpu.stolen and cpu.stolen >= 0.005 else ""
    load = f", load {cpu.load:.1f}" if cpu.load is not None else ""
    yield line(f"{cpu.cpus or '?'}{quota}{throttled}{stolen}{load}", label="CPUs")


def _gpu(gpu: Gpu) -> str:
    used, total = gpu.memory_used, gpu.memory_total
    parts = (
        gpu.name or "does not answer",
        f"{size(used)} of {size(total)} used" if used is not None and total is not None else None,
        f"{gpu.busy:.0%} busy" if gpu.busy is not None else None,
        f"{gpu.temperature} °C" if gpu.temperature is not None else None,
        f"{gpu.uncorrected_errors} memory errors that were not corrected" if gpu.uncorrected_errors else None,
    )
    return ", ".join(filter(None, parts))


def _limit(limit: LimitUse) -> str:
    used = f"{limit.used} used" if limit.used is not None else ""
    soft = f"at most {limit.soft}" if limit.soft is not None else ""
    return ", ".join(filter(None, (used, soft)))


def _place(found: Machine) -> Iterator[Line]:
    place = found.place
    if place is None:
        return
    if place.cgroup:
        yield line(place.cgroup, label="cgroup")
    for name, value in place.orchestrator.items():
        yield line(value, label=name)
