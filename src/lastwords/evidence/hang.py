"""A process that hangs: where each of its threads stands, from a snapshot of it and from what /proc said before."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import msgspec

from lastwords import _native
from lastwords.evidence import box as raw
from lastwords.evidence import fault, python_text, source_code, syscalls
from lastwords.evidence.assemble import from_box
from lastwords.evidence.blocked import PAGE_FAULT, blocked_on, is_served, mount_of
from lastwords.evidence.machine import with_machine
from lastwords.evidence.memory import from_curve
from lastwords.evidence.missing import missing
from lastwords.evidence.model import (
    Evidence,
    Hang,
    HeldLock,
    HungThread,
    NativeStack,
    PythonFrame,
    PythonStack,
)
from lastwords.watch.hangs import Hung
from lastwords.watch.outside import Frame
from lastwords.watch.threads import Thread

SOURCE = "a snapshot that the process took of itself, and /proc before it was asked"
UNANSWERED_SOURCE = "/proc; it did not answer the probe signal"
OUTSIDE_SOURCE = "its memory, read from outside: it could not be asked"
NATIVE_SOURCE = "the stack of the living thread, unwound afterwards"
PYTHON_SOURCE = "CPython's own list of frames, taken by the probe handler"
RUNNING = "running"
MOST_THREADS = 64
MOST_FRAMES = 32
"""Native ones, of each thread but the main one."""
# glibc: the lock's word, a counter, and the tid of the owner.
OWNER = slice(8, 12)
_WAITS_FOR_MUTEX = (
    "pthread_mutex_lock",
    "lll_lock_wait",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
)
# CPython up to 3.12, and from 3.13 on.
_PYTHON_LOCKS = ("PyThread_acquire_lock", "PyMutex_Lock", "_PyParkingLot_Park", "_PySemaphore_Wait")
INNERMOST = 8


class _Probed(msgspec.Struct, frozen=True):
    tid: int = 0
    name: str | None = None
    answered: bool = False
    state: str | None = None
    syscall: str | None = None
    wait_channel: str | None = None
    futex_address: int | None = None
    futex_bytes: str | None = None


class _Probe(msgspec.Struct, frozen=True):
    pid: int = 0
    architecture: str = "x86_64"
    time_unix_ns: int = 0
    threads: tuple[_Probed, ...] = ()
    python_text: str | None = None


def from_hang(hung: Hung, related: Sequence[str] = ()) -> Evidence:
    """Raises UnreadableBox, like `from_box`."""
    memory = from_curve(hung.memory, raw.read(hung.box), died_ns=hung.asked_ns)
    evidence = from_box(hung.box, None, related, time=hung.time, died_ns=hung.asked_ns, memory=memory)
    probe, stacks, notes = _read(hung.probe)
    threads = _threads(hung, probe, stacks)
    main = threads[0] if threads else None
    python, others = _python(probe, evidence) if probe is not None else _from_outside(hung, evidence)
    ran, waited = _shares(hung)
    mount = mount_of(main.blocked_on if main else None, hung.mounts)
    hang = Hang(
        source=SOURCE if probe is not None else UNANSWERED_SOURCE,
        seconds=hung.seconds,
        limit=hung.after,
        state=main.state if main else None,
        blocked_in=main.blocked_in if main else None,
        blocked_on=main.blocked_on if main else None,
        wait_channel=main.wait_channel if main else None,
        lock=main.lock if main else None,
        ran=ran,
        waited=waited,
        answered=probe is not None,
        threads=tuple(_cut(thread) for thread in threads),
        waits_for=_waits_for(main) if main else None,
        parent_threads=hung.parent_threads,
        others=hung.others,
        alike=hung.alike,
        throttled=_throttled(hung),
        quota=hung.now.throttling.quota if hung.now and hung.now.throttling else None,
        mount=mount.place if mount else None,
        file_system=f"{mount.kind} {mount.source}".strip() if mount else None,
    )
    evidence = msgspec.structs.replace(
        evidence,
        status=None,
        hang=hang,
        native_stack=NativeStack(source=NATIVE_SOURCE, frames=main.frames) if main and main.frames else None,
        python_stack=python or evidence.python_stack,
        other_threads=others if probe is not None or others else None,
        notes=(*evidence.notes, *notes),
    )
    evidence = msgspec.structs.replace(evidence, missing=tuple(missing(evidence)))
    return with_machine(evidence, hung.machine)


def with_last_look(evidence: Evidence, path: str | None) -> Evidence:
    """Where a process stood shortly before it was killed, if it was asked then and still was on the same item."""
    is_killed = evidence.status is not None and evidence.status.signal == "SIGKILL"
    if path is None or not is_killed or evidence.fault is not None:
        return evidence
    probe, stacks, notes = _read(path)
    before = _seconds_before(evidence, probe)
    if probe is None or before is None:
        return evidence
    source = f"a snapshot that it took of itself {before:.2f} s before it was killed"
    slot = next((slot for slot, one in enumerate(probe.threads) if one.tid == probe.pid), 0)
    stack = stacks[slot] if slot < len(stacks) else None
    native = fault.native_stack(stack) if stack is not None else None
    python, others = _python(probe, evidence)
    return msgspec.structs.replace(
        evidence,
        native_stack=msgspec.structs.replace(native, source=source) if native else None,
        python_stack=msgspec.structs.replace(python, source=source) if python else evidence.python_stack,
        other_threads=others,
        notes=(*evidence.notes, *notes),
    )


def _seconds_before(evidence: Evidence, probe: _Probe | None) -> float | None:
    """None: there is no snapshot, or it is of an item before the last."""
    if probe is None or evidence.time is None or not probe.time_unix_ns:
        return None
    before = max(0.0, evidence.time - probe.time_unix_ns / 1e9)
    item = evidence.item
    return before if item is None or item.seconds is None or before <= item.seconds else None


# Made while the module is imported, as in box.py, and for its reason.
_PROBE = msgspec.json.Decoder(_Probe)
_STACKS = msgspec.json.Decoder(list[raw.Autopsy | None])


def _read(path: str | None) -> tuple[_Probe | None, list[raw.Autopsy | None], list[str]]:
    if path is None:
        return None, [], ["it did not answer the probe signal"]
    try:
        probe = _PROBE.decode(_native.read_probe(path))
        stacks = _STACKS.decode(_native.autopsy_probe(path))
    except (OSError, ValueError) as error:
        return None, [], [f"the snapshot of the process was not read: {error}"]
    return probe, stacks, []


def _threads(hung: Hung, probe: _Probe | None, stacks: list[raw.Autopsy | None]) -> list[HungThread]:
    """The main thread first, the others in the order of their numbers."""
    seen = {thread.tid: thread for thread in hung.threads}
    architecture = probe.architecture if probe else platform.machine()
    if probe is None:
        return [
            _thread(hung, one, _Probed(tid=one.tid), None, set(seen), architecture) for one in hung.threads
        ]
    here = {one.tid for one in probe.threads} | set(seen)
    found = [
        _thread(
            hung, seen.get(one.tid), one, stacks[slot] if slot < len(stacks) else None, here, architecture
        )
        for slot, one in enumerate(probe.threads[:MOST_THREADS])
    ]
    return sorted(found, key=lambda thread: (thread.tid != probe.pid, thread.tid))


def _thread(
    hung: Hung,
    seen: Thread | None,
    probed: _Probed,
    stack: raw.Autopsy | None,
    here: set[int],
    architecture: str,
) -> HungThread:
    """`seen` is what it did before it was disturbed; the snapshot's own look at the thread that took it is not."""
    state = (seen.state if seen else None) or probed.state
    native = fault.native_stack(stack) if stack is not None else None
    frames = native.frames if native else ()
    blocked_in = _blocked_in(seen, probed, state, architecture)
    # Its memory was read for the main thread's call alone.
    inside = hung.inside if seen is not None and seen is hung.threads[0] else None
    return HungThread(
        tid=probed.tid,
        name=probed.name,
        state=state,
        blocked_in=blocked_in,
        blocked_on=blocked_on(blocked_in, seen, inside, hung.mounts),
        wait_channel=(seen.wait_channel if seen else None) or _channel(probed),
        frames=frames,
        lock=_lock(probed, [frame.function or "" for frame in frames[:INNERMOST]], here),
    )


def _blocked_in(seen: Thread | None, probed: _Probed, state: str | None, architecture: str) -> str | None:
    if state == "R":
        return RUNNING
    if seen is not None and seen.syscall is not None:
        return syscalls.name_of(seen.syscall, architecture)
    if seen is not None and seen.is_in_page_fault and state == "D":
        return PAGE_FAULT
    number = (probed.syscall or "").partition(" ")[0]
    return syscalls.name_of(int(number), architecture) if number.isdecimal() and seen is None else None


def _channel(probed: _Probed) -> str | None:
    return probed.wait_channel if probed.wait_channel not in (None, "", "0") else None


def _lock(probed: _Probed, innermost: list[str], here: set[int]) -> HeldLock | None:
    """Python's own locks are semaphores, which know no owner: only a mutex says who holds it."""
    if not probed.futex_address or not any(name in one for one in innermost for name in _WAITS_FOR_MUTEX):
        return None
    content = bytes.fromhex(probed.futex_bytes or "")[OWNER]
    owner = int.from_bytes(content, "little") if len(content) == OWNER.stop - OWNER.start else 0
    return HeldLock(
        address=probed.futex_address, owner=owner or None, owner_is_here=owner in here if owner else None
    )


def _waits_for(thread: HungThread) -> str | None:
    """By the functions that it is in. Locks of multiprocessing are semaphores that all its processes share."""
    inner = thread.frames[:INNERMOST]
    if any("_multiprocessing" in (frame.library or "") for frame in inner):
        return "a lock between processes"
    if any(name in (frame.function or "") for frame in inner for name in _PYTHON_LOCKS):
        return "a lock of Python"
    return "a mutex" if thread.lock is not None else None


def _python(probe: _Probe | None, evidence: Evidence) -> tuple[PythonStack | None, tuple[PythonStack, ...]]:
    """The stack of the main thread, and those of the others. CPython lists the main thread last."""
    if probe is None:
        return None, ()
    asked, others = python_text.parse(probe.python_text or "", PYTHON_SOURCE)
    is_main = bool(probe.threads) and probe.threads[0].tid == probe.pid
    blocks = (*others, asked) if asked is not None else others
    main = asked if is_main or not others else others[-1]
    others = tuple(one for one in blocks if one is not main)
    if main is None or not main.frames:
        return None, others
    started = evidence.process.started if evidence.process else None
    return msgspec.structs.replace(main, frames=source_code.with_code(main.frames, started)), others


def _from_outside(hung: Hung, evidence: Evidence) -> tuple[PythonStack | None, tuple[PythonStack, ...]]:
    """As `_python`, of one that could not be asked."""
    stacks = dict(hung.inside.stacks) if hung.inside is not None else {}
    main = _outside_stack(hung, stacks.pop(hung.process.own_pid, ()), evidence)
    others = (_outside_stack(hung, frames, evidence, f"{tid:#x}") for tid, frames in stacks.items())
    return main, tuple(one for one in others if one is not None)


def _outside_stack(
    hung: Hung, frames: Sequence[Frame], evidence: Evidence, thread: str | None = None
) -> PythonStack | None:
    if not frames:
        return None
    started = evidence.process.started if evidence.process else None
    found = tuple(PythonFrame(file=one.file, line=one.line, function=one.function) for one in frames)
    # The text of the lines may lie where the process waits: whoever opens that file waits with it.
    if not any(is_served(mount_of(one.file, hung.mounts)) for one in frames):
        found = source_code.with_code(found, started)
    return PythonStack(source=OUTSIDE_SOURCE, frames=found, thread=thread)


def _throttled(hung: Hung) -> float | None:
    """Since it was last looked at, if it was in the same group then. The kernel adds up what each CPU kept from it."""
    before, now = hung.before, hung.now
    if before is None or now is None or before.throttling is None or now.throttling is None:
        return None
    passed, group = now.taken_ns - before.taken_ns, now.throttling.path
    if passed <= 0 or before.throttling.path != group:
        return None
    kept = now.throttling.throttled_ns - before.throttling.throttled_ns
    return round(min(1.0, max(0, kept) / passed), 4)


def _shares(hung: Hung) -> tuple[float | None, float | None]:
    """Of one CPU: how much it ran, and how long it waited for one, since it was last looked at."""
    before, now = hung.before, hung.now
    if before is None or now is None or now.taken_ns <= before.taken_ns:
        return None, None
    passed = now.taken_ns - before.taken_ns
    return (
        round(max(0, now.ran_ns - before.ran_ns) / passed, 4),
        round(max(0, now.waited_ns - before.waited_ns) / passed, 4),
    )


def _cut(thread: HungThread) -> HungThread:
    return msgspec.structs.replace(thread, frames=thread.frames[:MOST_FRAMES])
