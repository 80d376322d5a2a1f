"""A collective operation timed out: some rank never came.

All ranks must call the same collectives in the same order. If one died, is slow, has less data or took another
branch, the others wait until the watchdog ends them, half an hour later by default. Those who complain are the ones
that were there: look for the rank that is silent, and for the operation that it did instead.

Where a log also says why a rank died (memory, a GPU error), that is the cause and this its echo.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, quoted, reason, said
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *reason(evidence, "timeout_said", "collective-timeout"),
        *reason(evidence, "peer_gone", "peer-lost"),
    ]
    unreached = next(
        (one for one in said(evidence, "network-failure") if one.fields.get("step") == "connect"), None
    )
    if reasons and unreached is not None:
        reasons.append(quoted("never_connected", unreached))
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    operation = field(evidence, ("collective-timeout",), "operation")
    return f"The ranks waited for each other in {operation or 'a collective'} until time was up."


def facts(evidence: Evidence) -> Facts:
    kinds = ("collective-timeout",)
    ranks = sorted({one.fields["rank"] for one in said(evidence, *kinds) if "rank" in one.fields}, key=int)
    return {
        "operation": field(evidence, kinds, "operation"),
        "sequence": field(evidence, kinds, "sequence"),
        "ranks_that_waited": " ".join(ranks) or None,
    }


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(text="find the rank that does not complain, and its last lines: it stopped first")
    yield Step(
        text="have each rank write what it did last:",
        command="export TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 NCCL_DEBUG=INFO",
    )
    yield Step(
        text="uneven data: give each rank the same number of batches (DistributedSampler(drop_last=True), `Join`)"
    )
    yield Step(
        text="only if a step is honestly slow (a checkpoint, evaluation on one rank): init_process_group(timeout=timedelta(hours=1))"
    )


CAUSE = Cause(
    id="collective-timeout",
    title="A rank did not come to a collective",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "timeout_said": 6.2,
        "peer_gone": 1.6,
        "never_connected": -4.0,
        "nothing_said": -3.5,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("collective-timeout", "text:collective-timeout"),
    near_misses=("text:gpu-out-of-memory", "text:network-failure"),
    fallback=1,
)
