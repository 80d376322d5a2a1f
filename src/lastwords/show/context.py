"""What stands around a death: where it happened, in native code and in yours, and how the process was doing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath, PureWindowsPath

from lastwords.causes import alone
from lastwords.causes.words import survived
from lastwords.diagnosis import Diagnosis
from lastwords.evidence.frames import (
    beside,
    blamed,
    faulting,
    is_yours,
    python_frames,
    short_function,
    short_library,
    yours,
)
from lastwords.evidence.model import Evidence, NativeFrame, PythonFrame
from lastwords.show import machine
from lastwords.show.lines import Line, line
from lastwords.show.quantities import duration, size

ANONYMOUS_NAMES = ("__init__.py", "__main__.py")
ALSO_POSSIBLE = 0.15
STEADY = 64 << 10
"""Memory that grows less than this per item is called steady."""


def context(diagnosis: Diagnosis) -> Iterator[Line]:
    evidence = diagnosis.evidence
    yield from _your_code(evidence)
    item = list(_item(evidence))
    state = [*item, *_memory(evidence), *_progress(evidence)]
    if state:
        yield line(" · ".join(state), label="item" if item else None, tone="dim")
    yield from _tried_alone(diagnosis)
    for other in diagnosis.causes[1:3]:
        if other.confidence >= ALSO_POSSIBLE and other.id != "unknown":
            yield line(f"{other.id} {round(other.confidence * 100)} %", label="also possible", tone="dim")


def _tried_alone(diagnosis: Diagnosis) -> Iterator[Line]:
    """Unless it stands among the proof already."""
    words, best = alone.in_words(diagnosis.evidence), diagnosis.best
    if words is not None and not (best and words in best.reasons_for):
        yield line(words, label="tried alone")


def native_place(evidence: Evidence) -> Line | None:
    """`in function · library · package version`, of the frame to blame and, where it is another, the innermost."""
    frame, inner = blamed(evidence), faulting(evidence)
    if frame is None or inner is None or survived(evidence) or not (frame.function or frame.library):
        return None
    is_other = inner is not frame and inner.function is not None
    # The C library's ways from abort() to the signal tell nobody anything.
    name = (
        "abort"
        if evidence.fault and evidence.fault.signal == "SIGABRT"
        else short_function(inner.function or "")
    )
    caller = f"{name}, called by " if is_other else ""
    return line(f"in {caller}{' · '.join(_parts(frame))}")


def _parts(frame: NativeFrame) -> Iterator[str]:
    yield short_function(frame.function) if frame.function else f"{frame.address:#x}"
    if frame.file:
        yield f"{short_path(frame.file)}:{frame.line}" if frame.line else short_path(frame.file)
    if frame.library:
        yield short_library(frame.library)
    if frame.package:
        yield f"{frame.package} {frame.package_version or ''}".strip()


def _your_code(evidence: Evidence) -> Iterator[Line]:
    frame, elsewhere = yours(python_frames(evidence)), beside(evidence)
    if elsewhere is not None:
        yield line(f"{_python(elsewhere)}  (another thread)", label="your code", tone="code")
    elif frame is not None:
        # Where a log or a stack has no frame of yours, the innermost is only where it was.
        label = "your code" if is_yours(frame) or frame.file.startswith("<") else "at"
        yield line(_python(frame), label=label, tone="code")
    if elsewhere is None and evidence.python_stack is not None and not evidence.python_stack.is_exact:
        yield line("called for this item; nobody saw where in it", label="", tone="dim")
    surfaced = yours(evidence.exception.surfaced) if evidence.exception else None
    if surfaced is not None:
        yield line(_python(surfaced), label="seen again", tone="code")


def _python(frame: PythonFrame) -> str:
    code = f":  {frame.code}" if frame.code else ""
    return f"{short_path(frame.file)}:{frame.line or '?'} in {frame.function}{code}"


def short_path(path: str) -> str:
    """The file's name; with its folder where the name alone says nothing."""
    whole = PureWindowsPath(path) if "\\" in path else PurePath(path)
    return str(type(whole)(*whole.parts[-2:])) if whole.name in ANONYMOUS_NAMES else whole.name or path


def _item(evidence: Evidence) -> Iterator[str]:
    item = evidence.item
    if item is None:
        return
    if item.key is not None and item.index is not None:
        yield item.key
    if item.phase not in (None, "run"):
        yield f"in {item.phase}"
    if item.seconds is not None:
        yield f"{duration(item.seconds)} into it"


def _memory(evidence: Evidence) -> Iterator[str]:
    memory = evidence.memory
    if memory is None:
        return
    growth = memory.per_item
    trend = None if growth is None else "steady" if growth < STEADY else f"growing {size(growth)} per item"
    used = f"memory {size(memory.resident)}" if memory.resident is not None else None
    at_once = machine.at_once(memory)
    parts = [used or (f"memory {trend}" if trend else None), trend if used and not at_once else None, at_once]
    words = ", ".join(filter(None, parts))
    if words:
        yield words


def _progress(evidence: Evidence) -> Iterator[str]:
    process, progress = evidence.process, evidence.progress
    if process is not None and process.attempt is not None:
        yield "first attempt" if process.attempt == 1 else f"attempt {process.attempt}"
    if progress is not None:
        yield f"{progress.done} {'item' if progress.done == 1 else 'items'} done before"
