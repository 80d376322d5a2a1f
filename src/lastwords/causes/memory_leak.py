"""Memory grew from item to item until there was none left.

A leak differs from one big item: each item takes a little and gives nothing back, and the worker dies after a
while, whatever item it has then. In Python the usual reasons are a list that keeps results or tensors with their
graph, a cache without a bound, and native code that forgets. With forked DataLoader workers a large list of Python
objects also grows: reading an object writes its reference count, and each written page is copied.

The memory curve tells it; a log can only report that somebody saw it grow.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import nothing_said, reason, said
from lastwords.causes.words import signal_of
from lastwords.evidence.model import Evidence

GROWTH = 256 << 10
"""Bytes per item that count as growth."""


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "growth_said", "memory-growth")]
    memory = evidence.memory
    if (
        memory is not None
        and memory.per_item is not None
        and (memory.items or 0) >= 20
        and memory.per_item >= GROWTH
    ):
        reasons.append(
            Reason("grew_per_item", f"it grew {memory.per_item >> 10} KiB per item over {memory.items} items")
        )
    if reasons and (
        said(evidence, "oom-kill", "memory-limit", "allocation-failed") or signal_of(evidence) == "SIGKILL"
    ):
        reasons.append(Reason("memory_ran_out", "and its end is that of a process without memory"))
    yield from nothing_said(reasons)


def sentence(_evidence: Evidence) -> str:
    return "Its memory grew from item to item until there was none left."


def facts(evidence: Evidence) -> Facts:
    memory = evidence.memory
    return {"per_item": memory.per_item if memory else None, "items": memory.items if memory else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(text="see what grows, in one worker:", command="python -m tracemalloc YOUR_JOB.py")
    yield Step(
        text="torch: keep numbers (`loss.item()`), not tensors; hold the dataset's lists as NumPy arrays, not as Python objects"
    )
    yield Step(
        text="recycle workers: `maxtasksperchild=100` (multiprocessing), `--max-tasks-per-child 100` (Celery), `--max-requests 1000` (gunicorn)"
    )


CAUSE = Cause(
    id="memory-leak",
    title="Memory grew from item to item",
    doc=__doc__,
    needs=("memory", "mentions"),
    prior=-3.0,
    weights={
        "growth_said": 3.6,
        "grew_per_item": 2.4,
        "memory_ran_out": 0.8,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:memory-leak",),
    near_misses=("text:out-of-memory", "killed-from-outside"),
)
