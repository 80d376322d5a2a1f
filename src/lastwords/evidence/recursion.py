"""Which functions call each other over and over, and how deep they are.

Of a stack that overflowed only both ends are saved. The inner end shows one round many times; its size, and the
size of the whole stack, tell how many rounds there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from lastwords.evidence.model import Fault, NativeFrame, NativeStack, PythonFrame, PythonStack, Recursion

SOURCE = "the saved stack: one round, its size, and the size of the whole stack"
FEWEST_ROUNDS = 8
LONGEST_ROUND = 64
SHARE = 0.6
"""Of the saved part: less is a deep stack, not one function that calls itself."""
FEWEST_PYTHON = 12
WHOLE = "outermost frame"
"""What the unwinder says when it has come to the very beginning."""

# Ways of CPython to call something: true of any recursion, and no name for one.
_DISPATCH = re.compile(
    r"_?(PyEval|PyObject_(Call|Vector|FastCall|Make)|PyVectorcall|PyFunction|PyCFunction)|"
    r"(cfunction|method|object|slot|vector|wrap)_?(vector)?call|slot_|vectorcall_|lookup_|call_|"
    r"PyObject_(Repr|Str|Hash|RichCompare\w*|GetAttr\w*|GenericGetAttr)|partial_|functools_|builtin_"
)

Name = tuple[str, str | None]
"""Function and library."""
Distance = Callable[[int], int | None]
"""From one return address to the next of the same kind, in bytes, where the stack's bytes are known."""


def recursion(
    fault: Fault, stack: NativeStack | None, python: PythonStack | None, distance: Distance
) -> Recursion | None:
    """None: nothing recurses that would be worth a word."""
    inner = _inner(stack)
    names = [_name(frame) for frame in inner]
    found = _round(names)
    if found is None:
        return None
    functions, seen = found
    size = distance(_usual_address(inner, functions[0]))
    repeated = _python(python) if any("_PyEval_Eval" in name for name, _ in functions) else None
    named = _worth_naming(functions)
    return Recursion(
        source=SOURCE,
        functions=tuple(name for name, _ in functions),
        function=named[0],
        library=named[1],
        seen=seen,
        depth=_depth(fault, stack, size, len(functions)),
        bytes_each=size,
        python=repeated,
    )


def _inner(stack: NativeStack | None) -> list[NativeFrame]:
    if stack is None:
        return []
    return [frame for frame in stack.frames[: stack.gap_before] if not frame.inlined]


def _usual_address(frames: list[NativeFrame], name: Name) -> int:
    """The innermost round may have been left at another place than the rest."""
    return Counter(frame.address for frame in frames if _name(frame) == name).most_common(1)[0][0]


def _name(frame: NativeFrame) -> Name:
    return frame.function or f"{frame.offset or frame.address:#x}", frame.library


def _round(names: Sequence[Name]) -> tuple[tuple[Name, ...], int] | None:
    """The names from one occurrence of the commonest one to the next, in the order that occurs most."""
    if not names:
        return None
    anchor, count = Counter(names).most_common(1)[0]
    if count < FEWEST_ROUNDS:
        return None
    places = [place for place, name in enumerate(names) if name == anchor]
    pairs = pairwise(places)
    rounds = Counter(tuple(names[start:end]) for start, end in pairs if end - start <= LONGEST_ROUND)
    commonest, seen = rounds.most_common(1)[0] if rounds else ((), 0)
    is_most = seen * len(commonest) >= SHARE * len(names)
    return (commonest, seen + 1) if is_most else None


def _worth_naming(functions: Sequence[Name]) -> Name:
    return next((name for name in functions if not _DISPATCH.match(name[0])), functions[0])


def _depth(fault: Fault, stack: NativeStack | None, size: int | None, length: int) -> int | None:
    """Counted where every frame was seen, else reckoned."""
    is_whole = stack is not None and stack.stopped_because == WHOLE
    if stack is not None and is_whole and (stack.gap_before is None or stack.omitted is not None):
        physical = sum(1 for frame in stack.frames if not frame.inlined)
        return (physical + (stack.omitted or 0)) // length
    if size and fault.sp is not None and fault.stack_high is not None and fault.stack_high > fault.sp:
        return (fault.stack_high - fault.sp) // size
    return None


def _python(stack: PythonStack | None) -> PythonFrame | None:
    """The Python function that the rounds pass through. CPython lists the innermost hundred frames."""
    if stack is None:
        return None
    counts = Counter((frame.file, frame.function) for frame in stack.frames)
    (place, count), *_ = counts.most_common(1) or [(("", ""), 0)]
    if count < FEWEST_PYTHON or count < len(stack.frames) / 4:
        return None
    # The usual line: the innermost round may not have come to it yet.
    return Counter(frame for frame in stack.frames if (frame.file, frame.function) == place).most_common(1)[
        0
    ][0]
