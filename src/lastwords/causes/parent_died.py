"""The process ended because its parent, driver or supervisor had died.

Workers are told to go when their parent goes: by PR_SET_PDEATHSIG, by a pipe that closes, by a heartbeat that stays
away. They are victims, and what they print (broken pipes, lost connections) says nothing about the reason: that lies
with the parent.

It is told by words about the parent, or by a worker that says its parent changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "parent_said", "parent-gone")])


def sentence(_evidence: Evidence) -> str:
    return "It ended because the process that it worked for had died before."


def facts(evidence: Evidence) -> Facts:
    return {"line": found.line if (found := first(evidence, "parent-gone")) else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="look at the parent's own end, earlier in time: its log, `lastwords list`, `sudo dmesg -T | tail -50`"
    )
    yield Step(
        text="have parent and workers recorded together:", command="lastwords run -- python YOUR_JOB.py"
    )


CAUSE = Cause(
    id="parent-died",
    title="Its parent died first",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "parent_said": 4.4,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:parent-died",),
    near_misses=("text:network-failure", "killed-by-parent"),
    fallback=1,
)
