"""A function wrote past an array on its own stack.

Compilers put a secret number (the canary) between a function's arrays and its return address. If it has changed
when the function wants to return, something was written past the end of an array, and the C library ends the
process with `*** stack smashing detected ***`. The function named is the one whose array was overrun; the write
itself happened a little earlier, in it or in something it called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.said import not_its_signal, passes_through, said
from lastwords.causes.words import native_steps, place_facts, place_first, source_line, stack_checks
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Evidence

_WORDS = re.compile(r"stack smashing detected|AddressSanitizer: stack-buffer-(over|under)flow")
_CHECK = re.compile(r"(__GI_)?__stack_chk_fail")


def words_of(evidence: Evidence) -> str | None:
    return said(evidence, _WORDS, "stack-smashing")


def is_smashed(evidence: Evidence) -> bool:
    return words_of(evidence) is not None or passes_through(evidence, _CHECK) is not None


def judge(evidence: Evidence) -> Iterator[Reason]:
    words, check = words_of(evidence), passes_through(evidence, _CHECK)
    if words is not None:
        yield Reason("its_words", f"it said: {words}")
    if check is not None:
        yield Reason(
            "guard_failed", f"{check} is called only where the guard of a function's stack is broken"
        )
    yield from not_its_signal(evidence, words, "SIGABRT")


def sentence(evidence: Evidence) -> str:
    if "buffer overflow detected" in (words_of(evidence) or ""):
        return "A call of the C library would have written past the end of a buffer, and was stopped."
    if blamed(evidence) is None:
        return "A function wrote past an array on its stack, and over the guard behind it."
    return f"{place_first(evidence)} wrote past an array on its stack, and over the guard behind it."


def facts(evidence: Evidence) -> Facts:
    fault = evidence.fault
    return {
        **place_facts(evidence),
        "message": words_of(evidence) or (fault.abort_message if fault else None),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame = blamed(evidence)
    if frame is not None and frame.file and frame.line:
        yield Step(text=f"look at the arrays of the function around {source_line(frame)}: one is too short")
    else:
        yield Step(
            text="look at the arrays on that function's stack: a text or a row longer than one came in"
        )
    yield from stack_checks(evidence)
    yield from native_steps(evidence)


CAUSE = Cause(
    id="stack-smashing",
    title="A function wrote past an array on its stack",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={"its_words": 6.0, "guard_failed": 5.0, "other_ending": -1.5, "other_signal": -8.0},
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("stack-smashing",),
    near_misses=("double-free", "abort", "overwritten-return-address"),
)
