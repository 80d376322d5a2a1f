"""One stack of Python and native frames: each Python frame where the interpreter's own frame stands for it.

From Python 3.11 on, one call of the interpreter's loop runs several Python functions. Where the numbers differ
nobody recorded which of them belong together; the outer frames then get one each, and the innermost the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from lastwords.evidence.model import Evidence, Fact, NativeFrame, PythonFrame

EXACT = "native and Python frames, one for one"
APPROXIMATE = "native and Python frames; which belong together is approximate"
EVALUATION = "_PyEval_EvalFrameDefault"
MOST_LISTED = 100
"""CPython lists no more frames than this, the innermost."""

# How CPython gets from one frame to the next, and how it started: true of every stack.
_PLUMBING = re.compile(
    r"_?PyEval_(EvalFrame|EvalCode|Vector)\w*|_?Py(Object|Vectorcall|Function|CFunction|Method)_?\w*[Cc]all\w*|"
    r"_PyFunction_Vectorcall|(cfunction|method|object|builtin)_?vectorcall\w*|cfunction_\w+|method_\w+|"
    r"object_vacall|_?Py_?Run\w*|Py_(BytesMain|Main|RunMain)|pymain_\w+|pyrun_\w+|run_(mod|eval_code_obj)|"
    r"vectorcall_\w+|call_function|do_call_core|trace_call_function|__libc_start\w*|_start|main|"
    r"(_PyEval|_?PyObject)_\w+Tstate|begin_thread|start_thread|clone3?|thread_run|(boot|thread_)\w*strap\w*"
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of either kind."""

    native: NativeFrame | None = None
    python: PythonFrame | None = None
    is_plumbing: bool = False
    """A reader may skip it."""


class Merged(Fact, frozen=True, kw_only=True):
    """Innermost first."""

    steps: tuple[Step, ...]
    gap_before: int | None = None
    is_exact: bool = True


def merged(evidence: Evidence) -> Merged | None:
    """None where there are no two stacks to merge."""
    native, python = evidence.native_stack, evidence.python_stack
    if native is None or python is None or not python.is_exact:
        return None
    evaluations = [place for place, frame in enumerate(native.frames) if _is_evaluation(frame)]
    if not evaluations or not python.frames:
        return None
    inner = sum(1 for place in evaluations if native.gap_before is not None and place < native.gap_before)
    shares = _share_around_gap(inner, len(evaluations) - inner, python.frames)
    is_exact = len(evaluations) == len(python.frames) and native.gap_before is None
    by_place = dict(zip(evaluations, shares, strict=True))
    steps, gap = list[Step](), None
    for place, frame in enumerate(native.frames):
        gap = len(steps) if place == native.gap_before else gap
        steps.extend(_steps(frame, by_place.get(place)))
    source = EXACT if is_exact else APPROXIMATE
    return Merged(source=source, steps=tuple(steps), gap_before=gap, is_exact=is_exact)


def _is_evaluation(frame: NativeFrame) -> bool:
    return frame.function is not None and frame.function.split(".")[0] == EVALUATION and not frame.inlined


def _share_around_gap(
    inner: int, outer: int, frames: tuple[PythonFrame, ...]
) -> list[tuple[PythonFrame, ...]]:
    """A stack with a gap is a recursion through C: one Python frame for each evaluation on its inner side."""
    is_cut = inner > 0 and len(frames) >= MOST_LISTED
    rest = () if is_cut else frames[inner:]
    return [*_share(inner, frames[:inner]), *_share(outer, rest)]


def _share(count: int, frames: tuple[PythonFrame, ...]) -> list[tuple[PythonFrame, ...]]:
    """Python frames for each of `count` evaluations, innermost first."""
    if not count:
        return []
    if len(frames) < count:
        return [(frame,) for frame in frames] + [()] * (count - len(frames))
    outer = [(frame,) for frame in frames[len(frames) - count + 1 :]]
    return [frames[: len(frames) - count + 1], *outer]


def _steps(frame: NativeFrame, share: tuple[PythonFrame, ...] | None) -> Iterator[Step]:
    if share:
        yield from (Step(python=one) for one in share)
    else:
        is_plumbing = frame.function is not None and _PLUMBING.fullmatch(frame.function) is not None
        yield Step(native=frame, is_plumbing=is_plumbing)
