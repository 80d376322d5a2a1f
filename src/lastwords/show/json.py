"""The report for programs: one object, schema `lastwords/1`. Fields are added, never renamed or removed."""

from __future__ import annotations

import shlex
from typing import Literal, TypeVar

import msgspec

from lastwords.causes import Facts
from lastwords.causes.words import hexadecimal
from lastwords.diagnosis import Diagnosis, Verdict
from lastwords.evidence.model import (
    Evidence,
    Machine,
    MemoryPoint,
    NativeFrame,
    PythonFrame,
    PythonStack,
)
from lastwords.evidence.model import HungThread as FoundThread
from lastwords.show.quantities import utc
from lastwords.show.secrets import mask_all

Told = TypeVar("Told", bound=msgspec.Struct)


class Item(msgspec.Struct, kw_only=True):
    key: str | None
    index: int | None


class Death(msgspec.Struct, kw_only=True):
    id: str | None
    time: str | None
    """ISO 8601, UTC."""
    host: str | None
    pid: int | None
    role: str | None
    worker: int | None
    signal: str | None
    exit_code: int | None
    status_source: str | None
    item: Item | None
    command: str | None
    """As a shell would take it."""
    attempt: int | None


class Cause(msgspec.Struct, kw_only=True, rename={"for_": "for"}):
    id: str
    title: str
    confidence: float
    for_: list[str]
    against: list[str]
    fix: list[str]
    facts: Facts


class Native(msgspec.Struct, kw_only=True):
    function: str | None
    library: str | None
    package: str | None
    file: str | None
    line: int | None
    address: str | None
    """Hexadecimal: numbers of 64 bits do not survive every JSON reader."""
    trust: str | None


class Python(msgspec.Struct, kw_only=True):
    file: str | None
    line: int | None
    function: str | None


class Thread(msgspec.Struct, kw_only=True):
    name: str | None
    python_stack: list[Python]


class Memory(msgspec.Struct, kw_only=True):
    resident: int | None
    peak: int | None
    per_item: int | None
    oom_kills_before: int | None
    oom_kills_after: int | None
    items: int | None
    """How many items `per_item` was measured over."""
    on_item: int | None
    """How much it grew since its last item began."""
    curve: list[MemoryPoint] | None
    """Oldest first."""


class Growth(msgspec.Struct, kw_only=True):
    name: str
    """What grew: `memory`, `private memory`, `open files`, `threads`, `shared memory`, `files in /dev/shm`."""
    per_item: float
    """Bytes, or how many."""
    items: int
    per_second: float | None
    used: int
    limit: int | None
    seconds_left: float | None
    """At this pace, until the limit."""
    alike: int | None
    """Siblings that grow at about the same pace."""
    next_death: float | None
    """Seconds until these reach the limit."""


class ParentEnd(msgspec.Struct, kw_only=True):
    pid: int
    seconds_before: float
    signal: str | None
    exit_code: int | None


class TriedAlone(msgspec.Struct, kw_only=True):
    outcome: str
    """`passed`, `died the same way` or `died otherwise`."""
    tries: int
    others: int | None
    """Workers that were there beside it when it died."""
    others_then: int | None
    """Of these, those that had something to do when the last try began."""
    is_that_try: bool
    """This death is that of the try; the one before it was in company."""


class HungThread(msgspec.Struct, kw_only=True):
    tid: int
    name: str | None
    state: str | None
    blocked_in: str | None
    functions: list[str | None]
    """Native, innermost first."""
    blocked_on: str | None
    wait_channel: str | None


class Hang(msgspec.Struct, kw_only=True):
    seconds: float
    limit: float
    state: str | None
    blocked_in: str | None
    """A system call, or `running`."""
    lock_owner: int | None
    lock_owner_is_here: bool | None
    ran: float | None
    waited: float | None
    answered: bool
    threads: list[HungThread]
    blocked_on: str | None
    """The file, pipe or connection that the call waits for."""
    wait_channel: str | None
    """Where in the kernel it sleeps."""
    waits_for: str | None
    """`a lock of Python`, `a lock between processes`, `a mutex`."""
    parent_threads: int | None
    """Of its parent, when it was forked."""
    others: int | None
    """Other processes of the job that were at work."""
    alike: int | None
    """How many of these hang in the same call."""
    throttled: float | None
    """Part of the time that its group was not let run."""
    quota: float | None
    """CPUs that its group may use; null: no limit."""
    mount: str | None
    """Where the file system is mounted that it waits for."""
    file_system: str | None
    """Its kind, and what is behind it: `nfs4 server:/data`."""


class Missing(msgspec.Struct, kw_only=True):
    what: str
    how_to_collect: str


class Document(msgspec.Struct, kw_only=True):
    schema: Literal["lastwords/1"] = "lastwords/1"
    death: Death
    causes: list[Cause]
    native_stack: list[Native] | None
    python_stack: list[Python] | None
    threads: list[Thread] | None
    memory: Memory | None
    contradictions: list[str]
    missing: list[Missing]
    signature: str | None
    hang: Hang | None
    """It lives, and does not get on."""
    machine: Machine | None
    """Right after the death."""
    growth: list[Growth] | None
    """What grew from item to item; empty: nothing, null: nobody watched it."""
    parent_end: ParentEnd | None
    """Its parent had ended before it."""
    tried_alone: TriedAlone | None
    """What became of its item when it was run again, first in a fresh worker; null: nobody tried."""


def render(diagnosis: Diagnosis) -> bytes:
    """UTF-8, whatever the terminal's encoding: JSON knows no other."""
    return encode(mask_all(msgspec.to_builtins(document(diagnosis))))


def render_all(diagnoses: list[Diagnosis]) -> bytes:
    return encode([mask_all(msgspec.to_builtins(document(diagnosis))) for diagnosis in diagnoses])


def encode(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def document(diagnosis: Diagnosis) -> Document:
    evidence = diagnosis.evidence
    return Document(
        death=_death(evidence),
        causes=[_cause(verdict) for verdict in diagnosis.causes],
        native_stack=[_native(one) for one in evidence.native_stack.frames]
        if evidence.native_stack
        else None,
        python_stack=_python_stack(evidence),
        threads=_threads(evidence.other_threads),
        memory=_memory(evidence),
        contradictions=list(diagnosis.contradictions),
        missing=[Missing(what=one.what, how_to_collect=one.how_to_collect) for one in evidence.missing],
        signature=diagnosis.signature,
        hang=_hang(evidence),
        machine=evidence.machine,
        growth=None if evidence.growth is None else [_as_told(one, Growth) for one in evidence.growth],
        parent_end=None if evidence.parent_end is None else _as_told(evidence.parent_end, ParentEnd),
        tried_alone=None if evidence.tried_alone is None else _as_told(evidence.tried_alone, TriedAlone),
    )


def _death(evidence: Evidence) -> Death:
    process, status, item, fault = evidence.process, evidence.status, evidence.item, evidence.fault
    from_fault = fault.signal if fault and status is None else None
    return Death(
        id=evidence.id or None,
        time=utc(evidence.time),
        host=process.host if process else None,
        pid=process.pid if process else None,
        role=process.role if process else None,
        worker=process.worker if process else None,
        signal=status.signal if status else from_fault,
        exit_code=status.exit_code if status else None,
        status_source=status.source if status else fault.source if fault else None,
        item=Item(key=item.key, index=item.index) if item else None,
        command=shlex.join(process.command) if process and process.command is not None else None,
        attempt=process.attempt if process else None,
    )


def _cause(verdict: Verdict) -> Cause:
    return Cause(
        id=verdict.id,
        title=verdict.title,
        confidence=round(verdict.confidence, 4),
        for_=list(verdict.reasons_for),
        against=list(verdict.reasons_against),
        fix=[f"{step.text} {step.command}" if step.command else step.text for step in verdict.steps],
        facts=verdict.facts,
    )


def _native(frame: NativeFrame) -> Native:
    return Native(
        function=frame.function,
        library=frame.library,
        package=frame.package,
        file=frame.file,
        line=frame.line,
        address=hexadecimal(frame.address),
        trust=frame.trust,
    )


def _python_stack(evidence: Evidence) -> list[Python] | None:
    if evidence.python_stack is not None:
        return _python(evidence.python_stack.frames)
    return _python(evidence.exception.frames) if evidence.exception else None


def _python(frames: tuple[PythonFrame, ...]) -> list[Python]:
    return [Python(file=frame.file, line=frame.line, function=frame.function) for frame in frames]


def _threads(threads: tuple[PythonStack, ...] | None) -> list[Thread] | None:
    if threads is None:
        return None
    return [Thread(name=one.thread, python_stack=_python(one.frames)) for one in threads]


def _memory(evidence: Evidence) -> Memory | None:
    memory, kills = evidence.memory, evidence.oom_kills
    if memory is None and kills is None:
        return None
    return Memory(
        resident=memory.resident if memory else None,
        peak=memory.peak if memory else None,
        per_item=memory.per_item if memory else None,
        oom_kills_before=kills.before if kills else None,
        oom_kills_after=kills.after if kills else None,
        items=memory.items if memory else None,
        on_item=memory.on_item if memory else None,
        curve=list(memory.curve) if memory and memory.curve is not None else None,
    )


def _hang(evidence: Evidence) -> Hang | None:
    found = evidence.hang
    if found is None:
        return None
    return Hang(
        seconds=found.seconds,
        limit=found.limit,
        state=found.state,
        blocked_in=found.blocked_in,
        lock_owner=found.lock.owner if found.lock else None,
        lock_owner_is_here=found.lock.owner_is_here if found.lock else None,
        ran=found.ran,
        waited=found.waited,
        answered=found.answered,
        threads=[_hung_thread(thread) for thread in found.threads],
        blocked_on=found.blocked_on,
        wait_channel=found.wait_channel,
        waits_for=found.waits_for,
        parent_threads=found.parent_threads,
        others=found.others,
        alike=found.alike,
        throttled=found.throttled,
        quota=found.quota,
        mount=found.mount,
        file_system=found.file_system,
    )


def _hung_thread(thread: FoundThread) -> HungThread:
    return HungThread(
        tid=thread.tid,
        name=thread.name,
        state=thread.state,
        blocked_in=thread.blocked_in,
        functions=[frame.function for frame in thread.frames],
        blocked_on=thread.blocked_on,
        wait_channel=thread.wait_channel,
    )


def _as_told(found: object, kind: type[Told]) -> Told:
    """For facts that are told as they were found."""
    return msgspec.convert(found, kind, from_attributes=True)
