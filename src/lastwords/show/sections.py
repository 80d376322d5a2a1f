"""The whole account of a death, section by section, for `lastwords show`."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.words import hexadecimal
from lastwords.diagnosis import Diagnosis, Verdict
from lastwords.evidence.model import Evidence, Fault
from lastwords.show import machine, registers, stacks
from lastwords.show.lines import Line, Section, line
from lastwords.show.quantities import duration, utc

MOST_THREADS = 16


def sections(diagnosis: Diagnosis) -> Iterator[Section]:
    evidence = diagnosis.evidence
    every = (
        ("causes", _causes(diagnosis)),
        ("the death", _death(evidence)),
        ("the hang", machine.hang(evidence)),
        ("stack", stacks.merged_stack(evidence)),
        ("native stack", stacks.native_stack(evidence)),
        ("Python stack", _python_stack(evidence)),
        ("other threads", _threads(evidence)),
        ("registers", registers.registers(evidence)),
        ("what they point at", registers.pointed(evidence)),
        ("its memory", machine.memory(evidence)),
        ("the machine", machine.machine(evidence)),
        ("before it", _events(evidence)),
        ("not known", _missing(evidence)),
        ("signature", iter([line(diagnosis.signature)])),
        ("notes for maintainers", (line(note) for note in (*evidence.notes, *diagnosis.notes))),
    )
    for title, lines in every:
        content = tuple(lines)
        if content:
            yield Section(title=title, lines=content)


def _causes(diagnosis: Diagnosis) -> Iterator[Line]:
    for verdict in diagnosis.causes:
        yield line(f"{verdict.id}  {verdict.confidence:.2f}  {verdict.title}", tone="strong")
        yield from terms(verdict)


def terms(verdict: Verdict) -> Iterator[Line]:
    for term in verdict.terms:
        sign = "+" if term.weight > 0 else "−"
        yield line(term.text, label=f"{sign}{abs(term.weight):.1f}", depth=1)


def _death(evidence: Evidence) -> Iterator[Line]:
    process, status, fault = evidence.process, evidence.status, evidence.fault
    rows = {
        "time": utc(evidence.time),
        "host": process.host if process else None,
        "command": " ".join(process.command) if process and process.command else None,
        "Python": process.runtime if process else None,
        "parent": f"pid {process.parent}" if process and process.parent else None,
        "role": process.role if process else None,
        "status": f"{status.signal or f'exit code {status.exit_code}'} (source: {status.source})"
        if status
        else None,
        "signal": _fault(fault) if fault else None,
        "tried alone": alone.in_words(evidence),
        "thread": f"{fault.thread_name or ''} {fault.thread}".strip() if fault and fault.thread else None,
        "CPU": evidence.cpu.model if evidence.cpu else None,
    }
    yield from (line(text, label=name) for name, text in rows.items() if text)


def _fault(fault: Fault) -> str:
    address = f" at {hexadecimal(fault.address)}" if fault.address is not None else ""
    access = f", {fault.access}" if fault.access else ""
    sender = f", sent by pid {fault.sender_pid}" if fault.sender_pid else ""
    return f"{fault.signal} {fault.code_name or fault.code}{address}{access}{sender}"


def _python_stack(evidence: Evidence) -> Iterator[Line]:
    if evidence.python_stack is not None:
        yield from stacks.python_frames(evidence.python_stack.frames)
    elif evidence.exception is not None:
        yield from stacks.python_frames(evidence.exception.frames)
        yield from stacks.python_frames(evidence.exception.surfaced)


def _threads(evidence: Evidence) -> Iterator[Line]:
    for thread in (evidence.other_threads or ())[:MOST_THREADS]:
        frame = thread.frames[0] if thread.frames else None
        place = stacks.python_text(frame) if frame else "no Python frame"
        yield line(place, label=thread.thread)


def _events(evidence: Evidence) -> Iterator[Line]:
    for event in evidence.events or ():
        before = f"{duration(event.seconds_before)} before" if event.seconds_before is not None else None
        yield line(f"{event.kind.replace('_', ' ')} {event.text}", label=before)


def _missing(evidence: Evidence) -> Iterator[Line]:
    for missing in evidence.missing:
        yield line(f"{missing.what}; to have it: {missing.how_to_collect}")
