"""Stacks as lines: native alone, and native and Python frames in one. Rounds of a recursion are shown once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lastwords.evidence.frames import short_function, short_library
from lastwords.evidence.merged import Step, merged
from lastwords.evidence.model import Evidence, NativeFrame, PythonFrame
from lastwords.show.lines import Line, line

MOST_FRAMES = 40
LONGEST_ROUND = 8
FEWEST_ROUNDS = 4


class Stretch(NamedTuple):
    """`length` entries from `start` on, which come `times` times after each other."""

    start: int
    length: int
    times: int


def stretches(keys: Sequence[str], gap: int | None = None) -> Iterator[Stretch]:
    """The whole of `keys` in order. Nothing is counted across the gap: what is there nobody knows."""
    at = 0
    while at < len(keys):
        end = gap if gap is not None and at < gap else len(keys)
        found = max(
            (Stretch(at, length, _times(keys[:end], at, length)) for length in range(1, LONGEST_ROUND + 1)),
            key=lambda one: (one.times >= FEWEST_ROUNDS, one.times * one.length, -one.length),
        )
        found = found if found.times >= FEWEST_ROUNDS else Stretch(at, 1, 1)
        yield found
        at += found.length * found.times


def _times(keys: Sequence[str], start: int, length: int) -> int:
    first = keys[start : start + length]
    times = 1
    while len(first) == length and keys[start + length * times : start + length * (times + 1)] == first:
        times += 1
    return times


def native_stack(evidence: Evidence) -> Iterator[Line]:
    stack = evidence.native_stack
    if stack is None:
        return
    keys = [_key(frame) for frame in stack.frames]
    for start, length, times in _shown(stretches(keys, stack.gap_before)):
        if start == stack.gap_before:
            yield _gap(stack.omitted)
        for place in range(start, start + length):
            yield line(_native(stack.frames[place]), label=f"#{place}")
        yield from _again(length, times)
    if stack.stopped_because:
        yield line(f"ends here: {stack.stopped_because}", tone="dim")


def merged_stack(evidence: Evidence) -> Iterator[Line]:
    """Python's own way from frame to frame is left out: it is the same on every stack."""
    found = merged(evidence)
    if found is None:
        return
    steps = [step for step in found.steps if not step.is_plumbing]
    gap = None
    if found.gap_before is not None:
        gap = sum(1 for step in found.steps[: found.gap_before] if not step.is_plumbing)
    for start, length, times in _shown(stretches([_text(step) for step in steps], gap)):
        if start == gap:
            yield _gap(None)
        for step in steps[start : start + length]:
            yield line(_text(step), tone="code" if step.python else "plain")
        yield from _again(length, times)
    if not found.is_exact:
        yield line("which Python frame goes with which native one is approximate", tone="dim")


def python_frames(frames: tuple[PythonFrame, ...]) -> Iterator[Line]:
    keys = [python_text(frame) for frame in frames]
    for start, length, times in _shown(stretches(keys)):
        for frame in frames[start : start + length]:
            yield line(python_text(frame))
            if frame.code:
                yield line(frame.code, tone="code", depth=1)
        yield from _again(length, times)


def python_text(frame: PythonFrame) -> str:
    return f"{frame.file}:{frame.line or '?'} in {frame.function}"


def _shown(found: Iterator[Stretch]) -> Iterator[Stretch]:
    shown = 0
    for one in found:
        if shown >= MOST_FRAMES:
            return
        yield one
        shown += one.length


def _again(length: int, times: int) -> Iterator[Line]:
    if times > 1:
        what = "this frame" if length == 1 else f"these {length} frames"
        yield line(f"… {what} again, {times - 1} times", tone="dim")


def _gap(omitted: int | None) -> Line:
    return line(f"… {f'{omitted} frames' if omitted else 'frames that were not saved'} …", tone="dim")


def _key(frame: NativeFrame) -> str:
    return f"{frame.function or frame.address} {frame.library} {frame.inlined}"


def _text(step: Step) -> str:
    if step.python is not None:
        return python_text(step.python)
    frame = step.native
    if frame is None:
        return "?"
    name = short_function(frame.function) if frame.function else f"{frame.address:#x}"
    return f"{name} in {short_library(frame.library)}" if frame.library else name


def _native(frame: NativeFrame) -> str:
    where = f" at {frame.file}:{frame.line}" if frame.file else ""
    package = f" ({frame.package} {frame.package_version or ''})".replace(" )", ")") if frame.package else ""
    library = f" in {short_library(frame.library)}{package}" if frame.library else ""
    guess = "" if frame.trust in ("context", "cfi") else f" [{frame.trust}]"
    inlined = " [inlined]" if frame.inlined else ""
    return f"{frame.address:#x} {frame.function or '?'}{inlined}{library}{where}{guess}"
