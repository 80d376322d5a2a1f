"""What causes do with the statements that a log makes: find them, quote them, and miss them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from lastwords.causes.cause import Reason
from lastwords.causes.words import signal_of
from lastwords.evidence.model import Evidence, Mention, PythonException
from lastwords.evidence.text import read_mentions
from lastwords.evidence.text.echoes import is_echo
from lastwords.evidence.text.excerpt import excerpt

LONGEST = 180
LONGEST_MESSAGE = 4096
MOST_FRAMES = 32

# Statements that tell of no end, and stand in many logs of jobs that end well.
HINTS = (
    "importing", "cpu-warning", "fork-hint", "hang-guess", "shm-small", "leaked", "old-runtime", "unconfined-works",
    "native-frame", "version-warning",
)  # fmt: skip
# Statements that name a reason by themselves: beside one of these, a kill is no riddle.
ORDERS = ("time-limit", "work-timeout", "preempted", "cancelled")


def mentions(evidence: Evidence) -> tuple[Mention, ...]:
    """What a log says; where there is none, what the exception that ended a recorded process says."""
    if from_text(evidence):
        return evidence.mentions or ()
    found = evidence.exception
    of_exception = _of_exception(found) if found is not None and found.fatal else ()
    return (*(evidence.mentions or ()), *of_exception)


def _of_exception(found: PythonException) -> tuple[Mention, ...]:
    frames = tuple(
        (frame.file, frame.line or 0, frame.function) for frame in reversed(found.frames[:MOST_FRAMES])
    )
    return tuple(
        msgspec.structs.replace(one, source=found.source) for one in _read(found.kind, found.message, frames)
    )


@lru_cache(maxsize=64)
def _read(kind: str, message: str, frames: tuple[tuple[str, int, str], ...]) -> tuple[Mention, ...]:
    lines = [f'  File "{file}", line {line}, in {function}' for file, line, function in frames]
    text = "\n".join([*lines, f"{kind}: {message[:LONGEST_MESSAGE]}"])
    return read_mentions(excerpt(text.encode("utf-8", "replace"), "the exception"))[0]


def said(evidence: Evidence, *kinds: str) -> tuple[Mention, ...]:
    """Every mention of these kinds, in the order of the log."""
    return tuple(one for one in mentions(evidence) if one.kind in kinds)


def first(evidence: Evidence, *kinds: str) -> Mention | None:
    return next(iter(said(evidence, *kinds)), None)


def field(evidence: Evidence, kinds: tuple[str, ...], name: str) -> str | None:
    """What the first mention that has this field says in it."""
    return next((one.fields[name] for one in said(evidence, *kinds) if one.fields.get(name)), None)


def quoted(name: str, mention: Mention) -> Reason:
    return Reason(name, f"{mention.source}: {mention.quote[:LONGEST]}")


def reason(evidence: Evidence, name: str, *kinds: str) -> Iterator[Reason]:
    """The first mention of these kinds as a reason, if there is one."""
    found = first(evidence, *kinds)
    if found is not None:
        yield quoted(name, found)


def from_text(evidence: Evidence) -> bool:
    """All that is known was read from a log: nothing was recorded."""
    was_recorded = evidence.events is not None or evidence.instruction is not None or evidence.cpu is not None
    return evidence.mentions is not None and not was_recorded


def bare(evidence: Evidence, *names: str) -> bool:
    """It died of one of these signals, and nothing more was recorded of it."""
    return evidence.fault is None and signal_of(evidence) in names


def only_lost(evidence: Evidence) -> bool:
    """A worker is gone, and nobody says how."""
    own = evidence.exception
    is_told = bool(said(evidence, "lost", "peer-lost", "heartbeat-lost"))
    return evidence.status is None and (is_told or (own is not None and is_echo(own.kind, own.message)))


# What a log says of a worker that is gone, without a word of why.
_OF_A_LOSS = (
    *HINTS, "lost", "peer-lost", "heartbeat-lost", "exception", "passed-on", "memory-guess", "memory-high", "node-lost", "exit",
    "manager-lost",
)  # fmt: skip


def names_a_reason(evidence: Evidence) -> bool:
    """Some line says more than that somebody is gone."""
    return any(one.kind not in _OF_A_LOSS for one in mentions(evidence))


def log_stops(evidence: Evidence) -> bool:
    """A log without one word of an end: whoever wrote it stands still, or was killed in the middle."""
    told = any(one.kind not in HINTS for one in evidence.mentions or ())
    return from_text(evidence) and not told and evidence.status is None and evidence.exception is None


def nothing_said(reasons: list[Reason]) -> Iterator[Reason]:
    """All reasons that were found; where there is none, that is the reason against."""
    yield from reasons
    if not reasons:
        yield Reason("nothing_said", "nothing that was collected speaks of it")
