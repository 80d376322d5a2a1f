"""The process stood still: it neither worked nor ended.

It waits for a lock, a queue, a peer or a device that will not answer. Somebody gave up in the end: a watchdog, a
time-out, or Ctrl-C, whose traceback shows only where the parent waited. Where the *worker* stood is what matters, and
no log has it unless something printed its stack.

Closer causes come first: a lock inherited by fork, a collective that a rank never reached, a disk that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, first, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *_watched(evidence),
        *reason(evidence, "no_progress_said", "no-progress"),
        *reason(evidence, "deadlock_said", "deadlock"),
        *reason(evidence, "waits", "waiting", "lock-wait"),
        *reason(evidence, "timed_out", "work-timeout", "collective-timeout"),
    ]
    yield from nothing_said(reasons)


def _watched(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.hang
    if found is not None:
        place = f", in {found.blocked_in}" if found.blocked_in else ""
        yield Reason(
            "stands_still", f"its item takes {found.seconds:.0f} s{place}; {found.limit:.0f} s were allowed"
        )


def sentence(evidence: Evidence) -> str:
    if evidence.hang is not None:
        return "It lives, and does not get on with its item."
    return "It stood still, and somebody gave up on it."


def facts(evidence: Evidence) -> Facts:
    found = first(evidence, "no-progress", "waiting", "deadlock", "work-timeout")
    return {"where": field(evidence, ("waiting",), "where"), "line": found.line if found else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="ask each worker where it stands (the workers, not the parent):",
        command="py-spy dump --native --pid PID",
    )
    yield Step(
        text="have stacks printed when nothing moves:",
        command="python -X faulthandler -c 'import faulthandler; faulthandler.dump_traceback_later(300, repeat=True)'",
    )
    yield Step(text="torch: set `timeout=` on the DataLoader, so that a stuck worker becomes an error")


CAUSE = Cause(
    id="hang",
    title="It stood still",
    doc=__doc__,
    needs=("hang", "mentions"),
    prior=-3.0,
    weights={
        "stands_still": 5.0,
        "no_progress_said": 4.0,
        "deadlock_said": 3.4,
        "waits": 2.4,
        "timed_out": 2.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:hang",),
    near_misses=("text:collective-timeout", "text:out-of-memory"),
    fallback=2,
)
