"""The words a process left behind, and the functions on its stack: what several native causes are told by."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Reason
from lastwords.causes.words import not_this_signal
from lastwords.evidence.frames import short_function
from lastwords.evidence.model import Evidence

LONGEST = 200
ELSEWHERE = ("messenger", "cuda-assert", "exception")
"""Mentions that have the words of an abort, and tell of something else: an assertion on the GPU ends no process, and one
that Python raised (OpenCV's) none by itself."""


def said(evidence: Evidence, pattern: re.Pattern[str], *kinds: str) -> str | None:
    """The line that matches: of its last message, or of a log. Mentions of these kinds count as they are."""
    lines = list(_lines(evidence))
    for line in lines:
        if pattern.search(line):
            return line.strip()[:LONGEST]
    found = next((one for one in evidence.mentions or () if one.kind in kinds), None)
    return found.quote.strip()[:LONGEST] if found else None


def _lines(evidence: Evidence) -> Iterator[str]:
    if evidence.fault is not None and evidence.fault.abort_message:
        yield from evidence.fault.abort_message.splitlines()
    yield from (one.quote for one in evidence.mentions or () if one.kind not in ELSEWHERE)


def functions_of(evidence: Evidence) -> tuple[str, ...]:
    """Names on the stack of the thread that died, innermost first."""
    frames = evidence.native_stack.frames if evidence.native_stack else ()
    return tuple(short_function(frame.function) for frame in frames if frame.function)


def passes_through(evidence: Evidence, pattern: re.Pattern[str], most: int | None = None) -> str | None:
    """The first function, among the innermost `most`, whose name begins as the pattern says."""
    return next((name for name in functions_of(evidence)[:most] if pattern.match(name)), None)


def not_its_signal(evidence: Evidence, words: str | None, *expected: str) -> list[Reason]:
    """Against: it died of something else. Words alone, with nothing recorded, are not contradicted by silence."""
    if words is not None and evidence.fault is None:
        return []
    return list(not_this_signal(evidence, *expected))
