"""What a process was doing while it lived: who it was, its item, its progress, its memory, its last events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import median

from lastwords.evidence import box as raw
from lastwords.evidence import signals
from lastwords.evidence.model import (
    Event,
    Item,
    Memory,
    ParentEnd,
    Process,
    Progress,
    PythonFrame,
    PythonStack,
    SentSignal,
    Status,
)
from lastwords.evidence.status import from_wait_status
from lastwords.watch.last_state import ALREADY_ENDING

SOURCE = "its black box"
CALLED_SOURCE = "the function that was called for the item, and the line it begins at"
_CALLED = re.compile(r"(.{1,400}):(\d{1,9}) (.{1,200})", re.DOTALL)
_SPAWNED = "multiprocessing.spawn"
MOST_EVENTS = 20
FEWEST_ITEMS = 4
"""Fewer say nothing about growth: the first items also fill caches."""


def process(identity: raw.Identity) -> Process:
    born = identity.born_unix_ns
    return Process(
        source=SOURCE,
        pid=identity.pid,
        parent=identity.parent,
        role=identity.role,
        worker=identity.worker,
        rank=identity.rank,
        host=identity.host,
        command=identity.command,
        executable=identity.executable,
        runtime=identity.runtime,
        started=born / 1e9 if born else None,
        is_child=identity.forked or any(_SPAWNED in word for word in identity.command or ()),
    )


def death_monotonic_ns(box: raw.Box, time: float | None, seen_ns: int | None = None) -> int | None:
    """The moment of death on the clock that items are timed with. The wall's clock is the last to be asked: it may have
    been set since the process began.
    """
    if box.crash and box.crash.time_ns:
        return box.crash.time_ns
    if seen_ns:
        return seen_ns
    identity = box.identity
    if (
        time is None
        or identity is None
        or identity.born_unix_ns is None
        or identity.born_monotonic_ns is None
    ):
        return None
    return int(time * 1e9) - identity.born_unix_ns + identity.born_monotonic_ns


def item(live: raw.Live, died_ns: int | None) -> Item | None:
    now = live.current
    if now is None or now.phase == "idle" or (now.index is None and now.key is None):
        return None
    seconds = max(0, died_ns - now.started_ns) / 1e9 if died_ns and now.started_ns else None
    key = now.key if now.key is not None else str(now.index)
    return Item(source=SOURCE, key=key, index=now.index, phase=now.phase, seconds=seconds)


def called(live: raw.Live) -> PythonStack | None:
    """The function that was called for the item. A kill leaves no frames: where in it, nobody knows."""
    match = _CALLED.fullmatch(live.called or "")
    if match is None or live.current is None:
        return None
    file, line, function = match.groups()
    frame = PythonFrame(file=file, line=int(line), function=function)
    return PythonStack(source=CALLED_SOURCE, frames=(frame,), is_exact=False)


def progress(live: raw.Live) -> Progress | None:
    return Progress(source=SOURCE, begun=live.items_begun, done=live.items_done) if live.items_begun else None


def said_status(live: raw.Live) -> Status | None:
    """What the process itself said as it ended; nobody saw whether it then ended so."""
    if not live.exit_said:
        return None
    return Status(source="what the process itself announced", exit_code=live.exit_code)


def killed_status(sent: Sequence[SentSignal]) -> Status | None:
    """Nobody saw the end, but SIGKILL was sent, and nothing survives that."""
    kill = next((one for one in sent if one.signal == "SIGKILL"), None)
    return Status(source=kill.source, signal=kill.signal) if kill else None


def parent_end(pid: int, seconds_before: float, raw_status: int | None) -> ParentEnd:
    """That of its parent, with the wait status that the watcher got for it."""
    status = from_wait_status(raw_status, "lastwords run") if raw_status is not None else None
    return ParentEnd(
        source="lastwords run, which watched both",
        pid=pid,
        seconds_before=round(seconds_before, 4),
        signal=status.signal if status else None,
        exit_code=status.exit_code if status else None,
    )


def memory(items: Sequence[raw.DoneItem]) -> Memory | None:
    changes = [done.rss_change_kib for done in items if done.rss_change_kib is not None]
    # The recorder measures only items that take long enough; the others say 0.
    if len(changes) < FEWEST_ITEMS or not any(changes):
        return None
    return Memory(source=SOURCE, per_item=int(median(changes)) * 1024, items=len(changes))


def events(found: Sequence[raw.Event], died_ns: int | None) -> tuple[Event, ...]:
    """The last ones, newest first."""
    return tuple(
        Event(
            kind=event.kind,
            text=" ".join(filter(None, (_numbers(event), event.text))),
            seconds_before=(died_ns - event.time_ns) / 1e9 if died_ns and event.time_ns else None,
        )
        for event in list(found)[: -MOST_EVENTS - 1 : -1]
    )


def _numbers(event: raw.Event) -> str:
    if event.kind == "sent_signal" and event.b is not None:
        return f"{signals.name_of(event.b)} to pid {event.a}"
    return f"pid {event.a}" if event.kind == "fork" else ""


def sent_signals(pid: int, born_ns: int | None, boxes: Sequence[raw.Box]) -> Iterator[SentSignal]:
    """Signals that recorded processes of the job sent to `pid` while it lived: pids are reused, and a pool also
    signals the worker that it found dead.
    """
    for box in boxes:
        for event in box.events:
            if event.kind != "sent_signal" or event.a != pid or not event.b:
                continue
            if born_ns and event.time_ns and event.time_ns < born_ns:
                continue
            if event.text == ALREADY_ENDING:
                continue
            yield _sent(event, box.identity, _stop_reason(box, pid, born_ns))


STOPPED_FOR_MEMORY = 1
"""STOP_REASONS of crates/blackbox/src/layout.rs."""


def _stop_reason(sender: raw.Box, pid: int, born_ns: int | None) -> raw.Event | None:
    for event in sender.events:
        if event.kind == "stop_reason" and event.a == pid and (event.time_ns or 0) >= (born_ns or 0):
            return event
    return None


def _sent(event: raw.Event, sender: raw.Identity | None, reason: raw.Event | None) -> SentSignal:
    return SentSignal(
        source="the black box of the process that sent it",
        signal=signals.name_of(event.b or 0),
        sender_pid=sender.pid if sender else 0,
        sender_role=sender.role if sender else None,
        time=_unix_time(event, sender),
        where=event.text or None,
        reason=(reason.text or None) if reason else None,
        is_for_memory=reason is not None and reason.b == STOPPED_FOR_MEMORY,
    )


def _unix_time(event: raw.Event, sender: raw.Identity | None) -> float | None:
    if event.time_ns is None or sender is None:
        return None
    if sender.born_unix_ns is None or sender.born_monotonic_ns is None:
        return None
    return (event.time_ns - sender.born_monotonic_ns + sender.born_unix_ns) / 1e9
