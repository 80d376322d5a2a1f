"""Two threads used one thing at the same time.

One changed what the other was reading: a dictionary "changed size during iteration", a connection answered the wrong
question, native code met half-written data. The same item passes alone and dies in company, now and then.

An item that its executor or DataLoader has tried again alone, and that passed, is a hint of the same kind; one that died
alone, in the same way, speaks against it, unless it starts both threads itself.

A sanitizer's report or one of Python's own complaints is proof. Native code that lets go of Python's lock (the GIL) and
crashes while a second thread is in the same library is suspicious, and no more: many libraries bear that well. Processes
that inherited one connection are another cause, `shared-state`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, first, nothing_said, reason
from lastwords.causes.words import file_name
from lastwords.evidence.frames import blamed, short_library
from lastwords.evidence.model import Evidence, PythonFrame

# Libraries that every thread passes through say nothing about two threads in them.
EVERYWHERE = re.compile(
    r"lib(?:c|m|python[\d.]*|pthread|stdc\+\+|gomp|gcc_s)\b|ld-linux|python[\d.]*$|_ctypes\b"
)


def _together(evidence: Evidence) -> PythonFrame | None:
    """The line of another thread that was in the very library, or in the very call, in which this one crashed."""
    frame, fault = blamed(evidence), evidence.fault
    if fault is None or frame is None or not frame.library or EVERYWHERE.match(short_library(frame.library)):
        return None
    here = evidence.python_stack.frames[:1] if evidence.python_stack else ()
    module = re.compile(rf"\b{re.escape(short_library(frame.library).split('.')[0])}\.\w")
    for thread in evidence.other_threads or ():
        other = thread.frames[0] if thread.frames else None
        if other is not None and (_is_same_call(here, other) or module.search(other.code or "")):
            return other
    return None


def _is_same_call(here: tuple[PythonFrame, ...], other: PythonFrame) -> bool:
    return any((one.file, one.line, one.function) == (other.file, other.line, other.function) for one in here)


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "data-race")]
    other = _together(evidence)
    if other is not None:
        where = f"{PurePath(other.file).name}:{other.line} in {other.function}"
        reasons.append(
            Reason("two_inside", f"another thread was in {file_name(_library(evidence))} too, from {where}")
        )
    if evidence.other_threads != ():
        reasons += alone.passed(evidence, "passed_alone")
    if bare(evidence, "SIGSEGV") and not reasons:
        reasons.append(
            Reason("could_be", "two threads in a library that allows only one end in SIGSEGV, too")
        )
    yield from nothing_said(reasons)
    if other is not None:
        yield from alone.died_again(evidence, "died_alone")


def _library(evidence: Evidence) -> str | None:
    frame = blamed(evidence)
    return frame.library if frame else None


def sentence(_evidence: Evidence) -> str:
    return "Two threads used one thing at the same time, and one of them changed it."


def facts(evidence: Evidence) -> Facts:
    other = _together(evidence)
    return {
        "line": found.line if (found := first(evidence, "data-race")) else None,
        "other_thread": f"{other.file}:{other.line}" if other else None,
        "tried_alone": alone.outcome(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if _together(evidence) is not None:
        yield Step(
            text=f"let one thread at a time into {file_name(_library(evidence))}: hold a threading.Lock around its calls"
        )
    yield Step(text="iterate over a copy (`list(d.items())`), or hold a lock while you change it")
    yield Step(text="one connection, cursor or model per thread (threading.local)")
    yield Step(text="see whether it goes away with one thread, to be sure")


CAUSE = Cause(
    id="data-race",
    title="Two threads used one thing at the same time",
    doc=__doc__,
    needs=("mentions", "other_threads", "native_stack", "tried_alone"),
    prior=-3.0,
    weights={
        "said_so": 5.0,
        "two_inside": 2.5,
        "could_be": 0.2,
        "passed_alone": 1.2,
        "died_alone": -0.8,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("changed-during-iteration", "thread-race", "text:data-race"),
    near_misses=("text:shared-state", "text:python-exception"),
)
