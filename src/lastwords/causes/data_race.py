"""Two threads used one thing at the same time.

One changed what the other was reading: a dictionary "changed size during iteration", a connection answered the wrong
question, native code met half-written data. The same item passes alone and dies in company, now and then.

A sanitizer's report or one of Python's own complaints is proof. Processes that inherited one connection are another
cause, `shared-state`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "said_so", "data-race")])


def sentence(_evidence: Evidence) -> str:
    return "Two threads used one thing at the same time, and one of them changed it."


def facts(evidence: Evidence) -> Facts:
    return {"line": found.line if (found := first(evidence, "data-race")) else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(text="iterate over a copy (`list(d.items())`), or hold a lock while you change it")
    yield Step(text="one connection, cursor or model per thread (threading.local)")
    yield Step(text="see whether it goes away with one thread, to be sure")


CAUSE = Cause(
    id="data-race",
    title="Two threads used one thing at the same time",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 4.6,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:data-race",),
    near_misses=("text:shared-state", "text:python-exception"),
)
