"""The whole account of a death, section by section, for `lastwords show`."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.words import hexadecimal
from lastwords.diagnosis import Diagnosis, Verdict
from lastwords.evidence.frames import short_library
from lastwords.evidence.model import Evidence, Fault, NativeFrame, PythonFrame
from lastwords.show.lines import Line, Section, line
from lastwords.show.quantities import duration, utc

MOST_FRAMES = 40
MOST_THREADS = 16


def sections(diagnosis: Diagnosis) -> Iterator[Section]:
    evidence = diagnosis.evidence
    every = (
        ("causes", _causes(diagnosis)),
        ("the death", _death(evidence)),
        ("native stack", _native_stack(evidence)),
        ("Python stack", _python_stack(evidence)),
        ("other threads", _threads(evidence)),
        ("registers", _registers(evidence)),
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
        "thread": f"{fault.thread_name or ''} {fault.thread}".strip() if fault and fault.thread else None,
        "CPU": evidence.cpu.model if evidence.cpu else None,
    }
    yield from (line(text, label=name) for name, text in rows.items() if text)


def _fault(fault: Fault) -> str:
    address = f" at {hexadecimal(fault.address)}" if fault.address is not None else ""
    access = f", {fault.access}" if fault.access else ""
    sender = f", sent by pid {fault.sender_pid}" if fault.sender_pid else ""
    return f"{fault.signal} {fault.code_name or fault.code}{address}{access}{sender}"


def _native_stack(evidence: Evidence) -> Iterator[Line]:
    stack = evidence.native_stack
    if stack is None:
        return
    for number, frame in enumerate(stack.frames[:MOST_FRAMES]):
        yield line(_native(frame), label=f"#{number}")
    if len(stack.frames) > MOST_FRAMES:
        yield line(f"… and {len(stack.frames) - MOST_FRAMES} more", tone="dim")
    if stack.stopped_because:
        yield line(f"ends here: {stack.stopped_because}", tone="dim")


def _native(frame: NativeFrame) -> str:
    where = f" at {frame.file}:{frame.line}" if frame.file else ""
    package = f" ({frame.package} {frame.package_version or ''})".replace(" )", ")") if frame.package else ""
    library = f" in {short_library(frame.library)}{package}" if frame.library else ""
    guess = "" if frame.trust in ("context", "cfi") else f" [{frame.trust}]"
    inlined = " [inlined]" if frame.inlined else ""
    return f"{frame.address:#x} {frame.function or '?'}{inlined}{library}{where}{guess}"


def _python_stack(evidence: Evidence) -> Iterator[Line]:
    if evidence.python_stack is not None:
        yield from _python_frames(evidence.python_stack.frames)
    elif evidence.exception is not None:
        yield from _python_frames(evidence.exception.frames)
        yield from _python_frames(evidence.exception.surfaced)


def _python_frames(frames: tuple[PythonFrame, ...]) -> Iterator[Line]:
    for frame in frames[:MOST_FRAMES]:
        yield line(f"{frame.file}:{frame.line or '?'} in {frame.function}")
        if frame.code:
            yield line(frame.code, tone="code", depth=1)


def _threads(evidence: Evidence) -> Iterator[Line]:
    for thread in (evidence.other_threads or ())[:MOST_THREADS]:
        frame = thread.frames[0] if thread.frames else None
        place = f"{frame.file}:{frame.line or '?'} in {frame.function}" if frame else "no Python frame"
        yield line(place, label=thread.thread)


def _registers(evidence: Evidence) -> Iterator[Line]:
    values = (
        [f"{name} {value:#x}" for name, value in evidence.fault.registers.items()] if evidence.fault else []
    )
    for start in range(0, len(values), 3):
        yield line("  ".join(values[start : start + 3]), tone="dim")
    if evidence.instruction is not None:
        yield line(f"{evidence.instruction.text}    ({evidence.instruction.bytes})", label="instruction")


def _events(evidence: Evidence) -> Iterator[Line]:
    for event in evidence.events or ():
        before = f"{duration(event.seconds_before)} before" if event.seconds_before is not None else None
        yield line(f"{event.kind.replace('_', ' ')} {event.text}", label=before)


def _missing(evidence: Evidence) -> Iterator[Line]:
    for missing in evidence.missing:
        yield line(f"{missing.what}; to have it: {missing.how_to_collect}")
