"""Python itself gave up.

`Fatal Python error: …` is what the interpreter says when it finds its own state beyond repair, before it calls
abort(). Nearly always an extension brought it there: it called Python without holding the GIL, destroyed a
reference count, or used an interpreter that was already shut down. The sentence behind the colon is what to go by.
It is on the process's standard error; where the function that gave up passed a constant, which it nearly always does,
lastwords reads it from that function's code, and it names the function.

Python's faulthandler uses the same words for signals (`Fatal Python error: Segmentation fault`); that is not
this cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes import heap_corruption, stack_overflow
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.said import functions_of, not_its_signal, passes_through, said
from lastwords.causes.words import file_name, native_steps
from lastwords.evidence.model import Evidence, NativeFrame

_SIGNALS = r"Segmentation fault|Aborted|Bus error|Illegal instruction|Floating[- ]point exception"
_WORDS = re.compile(rf"Fatal Python error: (?![\"']?(?:{_SIGNALS}))(.{{1,300}})")
_FRAMES = re.compile(
    r"(fatal_error(_exit)?|_Py_Ensure\w+|_?Py_FatalError\w*|_Py_FatalRefcountError\w*|Py_FatalError)(\.\w+)*$"
)
_GIL = re.compile(r"GIL|PyThreadState_Get|_PyThreadState_\w+|PyEval_(Save|Restore)Thread|take_gil")
_START = re.compile(r"\binit_|initfsencoding|codec of the filesystem|Py_Initialize\b")
_PYTHON = re.compile(r"libpython3|python3?(\.\d+)?$")


def words_of(evidence: Evidence) -> str | None:
    return said(evidence, _WORDS, "fatal-python")


def is_fatal(evidence: Evidence) -> bool:
    return words_of(evidence) is not None or passes_through(evidence, _FRAMES) is not None


def message_of(evidence: Evidence) -> str | None:
    """As it stands in a log; else as the function that gave up passed it on."""
    words = words_of(evidence)
    match = _WORDS.search(words) if words else None
    if match:
        return match[1]
    return evidence.fault.fatal_text if evidence.fault else None


def judge(evidence: Evidence) -> Iterator[Reason]:
    words, frame = words_of(evidence), passes_through(evidence, _FRAMES)
    if words is not None:
        yield Reason("its_words", f"it said: {words}")
    if frame is not None:
        text = evidence.fault.fatal_text if evidence.fault else None
        said_what = f", with the words: {text}" if text else ""
        who = raiser(evidence) or "something"
        yield Reason("gave_up", f"{frame} is where Python ends itself; {who} called it{said_what}")
    yield from not_its_signal(evidence, words, "SIGABRT")
    if heap_corruption.found_by(evidence) or (words and heap_corruption.words_of(evidence)):
        yield Reason("damaged_block", "it was Python's allocator that found a damaged block")
    if words is not None and stack_overflow.words_of(evidence):
        yield Reason("stack_was_full", "the stack was full")


def raiser(evidence: Evidence) -> str | None:
    """The function that called the end."""
    names = functions_of(evidence)
    last = max((place for place, name in enumerate(names) if _FRAMES.match(name)), default=None)
    return names[last + 1] if last is not None and last + 1 < len(names) else None


def outsider(evidence: Evidence) -> NativeFrame | None:
    """The innermost frame that called into Python from outside it, after the end was called."""
    frames = evidence.native_stack.frames if evidence.native_stack else ()
    begun = False
    for frame in frames:
        begun = begun or bool(frame.function and _FRAMES.match(frame.function))
        if begun and frame.library and not _PYTHON.search(file_name(frame.library)):
            return frame
    return None


def _is_about_the_gil(evidence: Evidence) -> bool:
    return bool(_GIL.search(f"{message_of(evidence) or ''} {raiser(evidence) or ''}"))


def _from(frame: NativeFrame) -> str:
    name = file_name(frame.library)
    return "through ctypes" if "ffi" in name or "_ctypes" in name else f"from {name}"


def _is_about_its_start(evidence: Evidence) -> bool:
    return bool(_START.search(message_of(evidence) or ""))


def sentence(evidence: Evidence) -> str:
    message, outside = message_of(evidence), outsider(evidence)
    if _is_about_its_start(evidence):
        return f"Python could not start: {(message or '').rstrip('.')}."
    by = f", called {_from(outside)}" if outside else ""
    if message:
        return f"Python gave up{by}: {message.rstrip('.')}."
    if _is_about_the_gil(evidence):
        return f"Python gave up in {raiser(evidence)}{by}, without the GIL being held."
    return f"Python gave up{by}: its own state is beyond repair."


def facts(evidence: Evidence) -> Facts:
    outside = outsider(evidence)
    return {
        "message": message_of(evidence),
        "function": raiser(evidence),
        "caller": outside.function if outside else None,
        "library": outside.library if outside else None,
        "package": outside.package if outside else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if message_of(evidence) is None:
        yield Step(text="read the line `Fatal Python error: …` that it wrote to its standard error")
    if _is_about_its_start(evidence):
        yield Step(
            text="it does not find its own library: PYTHONHOME and PYTHONPATH of another Python are the usual reason",
            command="env -u PYTHONHOME -u PYTHONPATH python -c 'import encodings; print(encodings.__file__)'",
        )
        yield Step(text="else the installation is not whole, or not readable for this user: install it again")
        return
    if _is_about_the_gil(evidence):
        yield Step(
            text="call Python only with the GIL held: PyGILState_Ensure() in C, `with gil:` in Cython,"
            " py::gil_scoped_acquire in pybind11, ctypes.PyDLL instead of CDLL"
        )
    else:
        yield Step(text="look at the extension that called it: a wrong reference count is the usual reason")
    yield from native_steps(evidence)


CAUSE = Cause(
    id="fatal-python-error",
    title="Python itself gave up",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        "its_words": 5.8,
        "gave_up": 5.5,
        "damaged_block": -5.5,
        "stack_was_full": -5.3,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("fatal-python-error", "fatal-error-of-extension", "gil-not-held"),
    near_misses=("abort", "null-dereference", "failed-assertion"),
)
