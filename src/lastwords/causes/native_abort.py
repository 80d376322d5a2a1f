"""Native code gave up by calling abort().

The process was not stopped by the hardware: code in it found that something was wrong, and ended it. An
assertion failed, a C++ exception was thrown that nothing caught, memory was asked for that could not be had
(`std::bad_alloc`), a function was called that does not exist yet (a pure virtual one), or the code called abort()
for a reason of its own. The kind, and the words that came with it, say what to look for.

Where the C library itself gave up over damaged memory, or Python over its own state, the cause has another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes import (
    fatal_python_error,
    heap_corruption,
    library_conflict,
    stack_overflow,
    stack_smashing,
)
from lastwords.causes.cause import SIGNAL_FITS, Cause, Facts, Reason, Step
from lastwords.causes.said import not_its_signal, passes_through, said
from lastwords.causes.words import native_steps, place, place_facts, place_first, signal_of, source_line
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Evidence
from lastwords.evidence.quantities import size

_ASSERTION = re.compile(r"Assertion [`'\"]?.{1,400}?['\"]? failed|\bassertion failed\b", re.IGNORECASE)
_EXPRESSION = re.compile(r"Assertion [`'\"](.{1,400}?)['\"] failed", re.IGNORECASE)
_THROWN = re.compile(r"terminate called after throwing an instance of '(.{1,300}?)'")
_WHAT = re.compile(r"what\(\):\s*(.{1,300})")
_NO_EXCEPTION = re.compile(r"terminate called (without an active exception|recursively)")
_PURE = re.compile(r"pure virtual (method|function) called")
_FORTIFY = re.compile(r"\*\*\* (buffer overflow|bit out of range|invalid .{1,40}) detected|%n in writable")
_MEMORY = re.compile(r"(^|::)bad_(array_new_length|alloc)")
_THROWS = re.compile(r"__cxa_(throw|rethrow)|_Unwind_RaiseException|std::terminate|__cxxabiv1::__terminate")
_PURE_FRAME = re.compile(r"__cxa_(pure|deleted)_virtual")
_ASSERT_FRAME = re.compile(r"(__GI_)?__assert_(fail|perror_fail|rtn)")
_PANIC_FRAME = re.compile(r"rust_panic|__rust_start_panic|core::panicking|std::panicking|panic_abort")
_PYTHON_FRAME = re.compile(r"os_abort")
_ABORT_FRAME = re.compile(r"(__GI_)?abort$")

_EXPLAINED_BY = re.compile(
    "|".join(f"({one.pattern})" for one in (_ASSERTION, _THROWN, _NO_EXCEPTION, _PURE, _FORTIFY)),
    re.IGNORECASE,
)
_MENTIONS = ("assert-failed", "cxx-terminate")


def judge(evidence: Evidence) -> Iterator[Reason]:
    words = said(evidence, _EXPLAINED_BY, *_MENTIONS)
    against = not_its_signal(evidence, words, "SIGABRT")
    yield from against
    if any(reason.name == "other_signal" for reason in against):
        return
    fault = evidence.fault
    if signal_of(evidence) == "SIGABRT" or fault is not None:
        yield Reason(SIGNAL_FITS, "it ended itself by abort() (SIGABRT)")
    yield from _judge_sender(evidence)
    if words is not None:
        yield Reason("its_words", f"it said: {words}")
    thrown = exception_of(evidence)
    if thrown is not None:
        yield Reason("exception", f"nothing caught {thrown}{_what(evidence)}")
    elif fault is None and _shows_abort(evidence):
        yield Reason("abort_called", "the stack shows that native code called abort()")
    elif words is None and kind_of(evidence) != "abort":
        yield Reason("kind_known", f"the stack shows what it was: {kind_of(evidence)}")
    yield from _judge_others(evidence)


def _shows_abort(evidence: Evidence) -> bool:
    """In a stack that a debugger printed into a log."""
    shown = (one for one in evidence.mentions or () if one.kind == "native-frame")
    return any(_ABORT_FRAME.match(one.fields.get("function", "")) for one in shown)


def _judge_sender(evidence: Evidence) -> Iterator[Reason]:
    """abort() sends the signal to itself; `kill -ABRT` and watchdogs send it from outside."""
    fault, process = evidence.fault, evidence.process
    if fault is None or fault.sender_pid is None or process is None:
        return
    if fault.sender_pid == process.pid:
        yield Reason("by_itself", "it sent SIGABRT to itself, as abort() does")
    else:
        yield Reason("from_outside", f"SIGABRT was sent by pid {fault.sender_pid}, not by itself")


def _judge_others(evidence: Evidence) -> Iterator[Reason]:
    """The C library and Python call abort() too, and say why."""
    if stack_smashing.is_smashed(evidence):
        yield Reason("smashed", "it was the guard of a function's stack that failed")
    if heap_corruption.words_of(evidence) or heap_corruption.found_by(evidence):
        yield Reason("damaged_heap", "it was the allocator that gave up, over damaged memory")
    if fatal_python_error.is_fatal(evidence):
        yield Reason("python_gave_up", "it was Python that gave up")
    if stack_overflow.words_of(evidence):
        yield Reason("stack_was_full", "the stack was full")
    if any(library_conflict.two_runtimes(evidence)):
        yield Reason("runtimes_clash", "it was an OpenMP runtime that found another one")


def exception_of(evidence: Evidence) -> str | None:
    """Type of the C++ exception: as recorded, else as the C++ library said."""
    fault = evidence.fault
    if fault is not None and fault.exception_type:
        return fault.exception_type
    words = said(evidence, _THROWN)
    match = _THROWN.search(words) if words else None
    return match[1] if match else None


def message_of(evidence: Evidence) -> str | None:
    fault = evidence.fault
    if fault is not None and fault.exception_what:
        return fault.exception_what
    words = said(evidence, _WHAT, "cxx-what")
    match = _WHAT.search(words) if words else None
    if match:
        return match[1]
    assertion = said(evidence, _ASSERTION)
    return assertion or (fault.abort_message.strip() if fault and fault.abort_message else None)


def _what(evidence: Evidence) -> str:
    message, thrown = message_of(evidence), exception_of(evidence)
    return f": {message}" if message and message != thrown else ""


def kind_of(evidence: Evidence) -> str:
    thrown = exception_of(evidence)
    if thrown is not None:
        return "bad-alloc" if _MEMORY.search(thrown) else "cpp-exception"
    signs = (
        ("assert", _ASSERTION, _ASSERT_FRAME),
        ("pure-virtual-call", _PURE, _PURE_FRAME),
        ("fortify", _FORTIFY, re.compile(r"(__GI_)?__chk_fail")),
        ("panic", re.compile(r"panicked at"), _PANIC_FRAME),
        ("cpp-exception", _NO_EXCEPTION, _THROWS),
    )
    found = (kind for kind, text, frame in signs if said(evidence, text) or passes_through(evidence, frame))
    return next(found, "abort")


def sentence(evidence: Evidence) -> str:
    where, message = place_first(evidence), message_of(evidence)
    thrown = exception_of(evidence)
    match kind_of(evidence):
        case "assert":
            expression = _EXPRESSION.search(message or "")
            return f"An assertion failed in {place(evidence)}{f': {expression[1]}' if expression else ''}."
        case "bad-alloc":
            return f"{where} asked for {_asked(evidence)} that could not be had, and nothing caught {thrown}."
        case "cpp-exception":
            return f"{where} threw {thrown or 'a C++ exception'}, and nothing caught it{_what(evidence)}."
        case "pure-virtual-call":
            return f"{where} called a virtual function of an object that is not built yet, or gone already."
        case "fortify":
            return f"{where} wanted to write past a buffer; the C library's check stopped it."
        case "panic":
            return f"Rust code panicked in {place(evidence)}, and could not pass it on."
    return f"{where} gave up: it called abort()."


def _asked(evidence: Evidence) -> str:
    asked = evidence.fault.asked_of_new if evidence.fault else None
    return f"{size(asked)} ({asked} bytes) of memory" if asked is not None else "memory"


def facts(evidence: Evidence) -> Facts:
    return {
        "kind": kind_of(evidence),
        "asked_for": evidence.fault.asked_of_new if evidence.fault else None,
        "message": message_of(evidence),
        "exception": exception_of(evidence),
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    kind, frame = kind_of(evidence), blamed(evidence)
    if evidence.fault is None and kind == "abort":
        yield Step(text="have it recorded next time:", command="lastwords run -- python YOUR_JOB.py")
        return
    where = source_line(frame) if frame is not None and frame.file and frame.line else None
    yield from _by_kind(evidence, kind, where or place(evidence))
    yield from native_steps(evidence)


def _by_kind(evidence: Evidence, kind: str, where: str) -> Iterator[Step]:
    if kind == "assert":
        yield Step(text="read the expression that had to be true: what was passed in made it false")
    elif kind == "bad-alloc":
        asked = evidence.fault.asked_of_new if evidence.fault else None
        if asked is None:
            yield Step(
                text=f"print the sizes that {where} computes: mostly a length from the data is absurd or negative"
            )
        else:
            yield Step(
                text=f"see where {where} takes {asked} bytes from: mostly a length from the data is absurd or negative"
            )
        yield Step(text="if the size is real, compare it with the limits:", command="ulimit -v; free -h")
    elif kind == "cpp-exception":
        yield Step(
            text="look up what the exception says; if the extension is yours, catch it before it reaches C"
        )
    elif kind == "pure-virtual-call":
        yield Step(
            text="do not call virtual functions in a constructor or destructor, nor objects being torn down"
        )
    elif passes_through(evidence, _PYTHON_FRAME):
        command = r"grep -rn 'os\.abort(' --include='*.py' ."
        yield Step(text="find where your own code calls os.abort():", command=command)
    else:
        yield Step(text=f"read what {where} writes to standard error before it gives up")


CAUSE = Cause(
    id="native-abort",
    title="Native code gave up by calling abort()",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        SIGNAL_FITS: 1.7,
        "by_itself": 2.4,
        "its_words": 4.1,
        "exception": 3.2,
        "kind_known": 1.5,
        "abort_called": 2.2,
        "from_outside": -6.0,
        "smashed": -7.0,
        "damaged_heap": -7.0,
        "python_gave_up": -7.0,
        "stack_was_full": -6.0,
        "runtimes_clash": -5.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("abort", "failed-assertion", "uncaught-cpp-exception", "bad-alloc", "pure-virtual-call"),
    near_misses=("double-free", "stack-smashing", "fatal-python-error", "null-dereference"),
)
