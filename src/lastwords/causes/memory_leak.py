"""Memory grew from item to item until there was none left.

A leak differs from one big item: each item takes a little and gives nothing back, and the worker dies after a
while, whatever item it has then. In Python the usual reasons are a list that keeps results or tensors with their
graph, a cache without a bound, and native code that forgets.

With forked workers a large list of Python objects grows, too, and nobody sees it: reading an object writes its
reference count, and each page that is written to is copied. The resident memory of the worker stays the same; only the
part of it that is the worker's own grows, and with it what the container uses.

The memory curve tells it; a log can only report that somebody saw it grow.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import nothing_said, reason, said
from lastwords.causes.words import growth_of, per_item, signal_of
from lastwords.evidence.model import Evidence, Growth
from lastwords.evidence.quantities import duration, size

GROWTH = 256 << 10
"""Bytes per item that count as growth."""
MANY = 20


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "growth_said", "memory-growth"), *_watched(evidence)]
    if reasons and (
        said(evidence, "oom-kill", "memory-limit", "allocation-failed") or signal_of(evidence) == "SIGKILL"
    ):
        reasons.append(Reason("memory_ran_out", "and its end is that of a process without memory"))
    yield from nothing_said(reasons)
    if reasons:
        yield from _tried(evidence)


def _tried(evidence: Evidence) -> Iterator[Reason]:
    """A fresh worker has not leaked yet; but its siblings may have left it no room."""
    if alone.has_passed(evidence):
        yield Reason("passed_alone", alone.in_words(evidence) or "")
    yield from alone.died_again(evidence, "died_alone")


def _watched(evidence: Evidence) -> Iterator[Reason]:
    memory, leak, copied = evidence.memory, _leak(evidence), growth_of(evidence, "private memory")
    if leak is not None:
        yield Reason("grew_per_item", f"it grew {per_item(leak)}")
        if leak.alike:
            yield Reason("siblings_grow", _forecast(leak))
    elif copied is not None:
        yield Reason(
            "pages_copied",
            f"its own pages grew {per_item(copied)} while its size"
            " stayed the same: pages shared with its parent are written to, and copied",
        )
    elif memory is not None and (memory.items or 0) >= MANY and (memory.per_item or 0) >= GROWTH:
        yield Reason(
            "grew_per_item", f"it grew {size(memory.per_item or 0)} per item over {memory.items} items"
        )


def _leak(evidence: Evidence) -> Growth | None:
    found = growth_of(evidence, "memory")
    return found if found is not None and found.per_item >= GROWTH else None


def _forecast(leak: Growth) -> str:
    many = f"{leak.alike} other workers grow" if (leak.alike or 0) > 1 else "another worker grows"
    when = f": the next death in about {duration(leak.next_death)}" if leak.next_death is not None else ""
    return f"{many} the same way{when}"


def sentence(evidence: Evidence) -> str:
    if _leak(evidence) is None and growth_of(evidence, "private memory") is not None:
        return "Memory that it shared with its parent became its own, page by page, from item to item."
    return "Its memory grew from item to item until there was none left."


def facts(evidence: Evidence) -> Facts:
    memory = evidence.memory
    leak = _leak(evidence) or growth_of(evidence, "private memory")
    return {
        "per_item": int(leak.per_item) if leak else memory.per_item if memory else None,
        "items": leak.items if leak else memory.items if memory else None,
        "per_second": leak.per_second if leak else None,
        "limit": leak.limit if leak else None,
        "seconds_left": leak.seconds_left if leak else None,
        "copy_on_write": leak.name == "private memory" if leak else None,
        "siblings_alike": leak.alike if leak else None,
        "next_death": leak.next_death if leak else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if growth_of(evidence, "private memory") is not None:
        yield Step(
            text="hold what all workers read in NumPy arrays, Arrow tables or a file that is mapped, not in Python objects"
        )
        yield Step(text="or call `gc.freeze()` before the workers are forked")
    yield Step(text="see what grows, in one worker:", command="python -X tracemalloc=10 YOUR_JOB.py")
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
    needs=("growth", "memory", "mentions"),
    prior=-3.0,
    weights={
        "growth_said": 4.0,
        "grew_per_item": 2.2,
        "siblings_grow": 0.2,
        "pages_copied": 2.6,
        "memory_ran_out": 0.3,
        "passed_alone": 0.6,
        "died_alone": -1.2,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("memory-leak", "text:memory-leak"),
    near_misses=("text:out-of-memory", "killed-from-outside", "memory-limit"),
)
