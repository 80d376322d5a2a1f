"""Puts the facts about one death together, from a black box or from no more than an exit status."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec

from lastwords.evidence import box as raw
from lastwords.evidence import (
    copies,
    cpu,
    exit_call,
    fault,
    life,
    pointers,
    python_text,
    raised,
    recursion,
    saved_stack,
    shared_names,
    source_code,
)
from lastwords.evidence.missing import RUN, missing
from lastwords.evidence.model import (
    Cpu,
    Evidence,
    Memory,
    Missing,
    OomKills,
    Process,
    PythonException,
    PythonStack,
    Status,
)

PYTHON_SOURCE = "CPython's own list of frames, taken by the crash handler"
MOST_RELATED = 4096
MOST_WITH_CODE = 8
"""Threads beside the one that died whose lines are looked up."""

Path = str | os.PathLike[str]


def from_box(
    path: Path,
    status: Status | None = None,
    related: Sequence[Path] = (),
    *,
    time: float | None = None,
    died_ns: int | None = None,
    memory: Memory | None = None,
    oom_kills: OomKills | None = None,
) -> Evidence:
    """Everything that the box at `path` tells, together with what the watcher saw.

    `status` is what the kernel said, `time` when (seconds since 1970), `died_ns` the same on the monotonic clock of
    the boxes, which nobody sets back; `related` are the other boxes of the same
    run: they know who sent a signal, and which item an exception came from. Raises UnreadableBox if `path` is not
    a box; a related one that is not becomes a note.
    """
    own, status = raw.read(path), _known(status)
    others, notes = _read_related(path, related)
    evidence = _from_live(own, others, status, time, died_ns)
    evidence = msgspec.structs.replace(
        evidence,
        memory=memory or life.memory(own.items),
        oom_kills=oom_kills,
        notes=(*own.notes, *notes),
    )
    if own.crash is not None and own.crash.signal:
        evidence = _with_crash(evidence, own, raw.autopsy(path), path)
    return msgspec.structs.replace(evidence, missing=tuple(missing(evidence)))


def from_status(
    status: Status | None,
    *,
    process: Process | None = None,
    time: float | None = None,
    memory: Memory | None = None,
    oom_kills: OomKills | None = None,
) -> Evidence:
    """What is known of a death of which nobody kept a record."""
    evidence = Evidence(
        time=time,
        process=process,
        status=_known(status),
        memory=memory,
        oom_kills=oom_kills,
    )
    no_box = Missing(what="what it was doing (item, stack, registers, exception)", how_to_collect=RUN)
    return msgspec.structs.replace(evidence, missing=(no_box, *missing(evidence)))


def _known(status: Status | None) -> Status | None:
    """A status that says neither is none: nobody saw the end."""
    if status is None or (status.signal is None and status.exit_code is None):
        return None
    return status


def _read_related(path: Path, related: Sequence[Path]) -> tuple[list[raw.Box], list[str]]:
    boxes, notes = [], []
    for other in list(related)[:MOST_RELATED]:
        if os.fspath(other) == os.fspath(path):
            continue
        try:
            boxes.append(raw.read(other))
        except raw.UnreadableBox as error:
            notes.append(f"a related box was not read: {error}")
    return boxes, notes


def _from_live(
    own: raw.Box, others: list[raw.Box], status: Status | None, time: float | None, seen_ns: int | None
) -> Evidence:
    identity, live = own.identity or raw.Identity(), own.live or raw.Live()
    crashed = own.crash.time_unix_ns if own.crash else None
    died = crashed / 1e9 if crashed else time
    died_ns = life.death_monotonic_ns(own, died, seen_ns)
    born_ns = identity.born_monotonic_ns
    sent = tuple(life.sent_signals(identity.pid, born_ns, [own, *others]))
    exception = _with_code(raised.exception(own, others), own)
    end = status or life.said_status(live) or life.killed_status(sent)
    left = exit_call.stack(own, end)
    return Evidence(
        time=died,
        process=life.process(identity),
        status=end,
        item=life.item(live, died_ns) or (exception.item if exception else None),
        python_stack=None if exception else _stack_with_code(left or life.called(live), own),
        exception=exception,
        shared_name=shared_names.shared_name(exception, _started(own)),
        sent_signals=sent,
        cpu=_cpu(identity),
        progress=life.progress(live),
        shut_down=own.live.exit_said if own.live else None,
        events=life.events(own.events, died_ns),
    )


def _with_crash(evidence: Evidence, own: raw.Box, autopsy: raw.Autopsy, path: Path) -> Evidence:
    assert own.crash is not None
    pid = own.identity.pid if own.identity else None
    stack, others = python_text.parse(own.python_text or "", PYTHON_SOURCE)
    met, native = fault.fault(own.crash, pid, autopsy), fault.native_stack(autopsy)
    return msgspec.structs.replace(
        evidence,
        fault=met,
        instruction=fault.instruction(autopsy),
        native_stack=native,
        recursion=recursion.recursion(met, native, stack, _distances(own.crash, path)),
        copies=copies.copies(autopsy.libraries),
        pointers=pointers.pointers(own, met, native.frames if native else ()),
        python_stack=_stack_with_code(stack, own) or evidence.python_stack,
        other_threads=_others(others, own) if own.python_text else None,
        notes=(*evidence.notes, *autopsy.notes, *_handler_notes(own.crash)),
    )


def _distances(crash: raw.Crash, path: Path) -> recursion.Distance:
    """The saved stack is read only if something recurses."""
    return lambda address: saved_stack.distance(saved_stack.read(path, crash.stack_address or 0), address)


def _handler_notes(crash: raw.Crash) -> list[str]:
    notes = [f"the crash handler could not do its step {step!r}" for step in crash.steps_failed]
    if crash.nested_signal:
        notes.append(f"signal {crash.nested_signal} inside the crash handler, step {crash.nested_step}")
    return notes


def _started(box: raw.Box) -> float | None:
    born = box.identity.born_unix_ns if box.identity else None
    return born / 1e9 if born else None


def _stack_with_code(stack: PythonStack | None, box: raw.Box) -> PythonStack | None:
    if stack is None or not stack.frames:
        return None
    return msgspec.structs.replace(stack, frames=source_code.with_code(stack.frames, _started(box)))


def _others(threads: tuple[PythonStack, ...], box: raw.Box) -> tuple[PythonStack, ...]:
    return (
        tuple(_stack_with_code(thread, box) or thread for thread in threads[:MOST_WITH_CODE])
        + threads[MOST_WITH_CODE:]
    )


def _with_code(exception: PythonException | None, box: raw.Box) -> PythonException | None:
    if exception is None:
        return None
    return msgspec.structs.replace(
        exception,
        frames=source_code.with_code(exception.frames, _started(box)),
        surfaced=source_code.with_code(exception.surfaced, _started(box)),
    )


def _cpu(identity: raw.Identity) -> Cpu | None:
    """This host's CPU says nothing about a death on another."""
    host = cpu.this_host() if identity.host in (None, socket.gethostname()) else None
    return cpu.as_the_process_saw_it(host, identity.cpuid)
