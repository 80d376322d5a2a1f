"""Not enough is known to name a cause.

No other cause fits well enough to be claimed. The report says what is missing and how to collect it; that is
the next thing to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.words import ended
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield Reason("what_is_known", f"all that is known: {ended(evidence)}")
    kills = evidence.oom_kills
    if kills is not None and kills.after > kills.before:
        yield Reason(
            "memory_kill", f"the kernel killed for want of memory: oom_kill {kills.before} → {kills.after}"
        )
    if evidence.missing:
        yield Reason("more_is_missing", f"not known: {evidence.missing[0].what}")


def sentence(_evidence: Evidence) -> str:
    return "There is not enough evidence to name a cause."


def facts(evidence: Evidence) -> Facts:
    status = evidence.status
    return {"signal": status.signal if status else None, "exit_code": status.exit_code if status else None}


def remedy(evidence: Evidence) -> Iterator[Step]:
    for missing in evidence.missing:
        yield Step(text=f"to learn {missing.what}: {missing.how_to_collect}")
    if not evidence.missing and evidence.id:
        yield Step(text="read all that was recorded:", command=f"lastwords show {evidence.id}")


CAUSE = Cause(
    id="unknown",
    title="Not enough is known",
    doc=__doc__,
    needs=(),
    prior=-1.0,
    weights={"what_is_known": 0.1, "more_is_missing": 0.5, "memory_kill": 0.1},
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=(),
    near_misses=("null-dereference", "killed-from-outside"),
    fallback=3,
)
