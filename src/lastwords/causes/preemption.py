"""The machine was taken away for somebody else.

A job of higher priority, a spot machine that the cloud wants back, a pod that was evicted, a node that is drained:
nothing is wrong with the program, and the next attempt elsewhere works. What helps is a checkpoint and a retry.

It is told from a kill by an operator by the words of the scheduler. An eviction for want of memory or disk is not
this cause: there the job itself took too much.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason, said
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "preempted")]
    if said(evidence, "node-lost"):
        reasons.extend(reason(evidence, "node_gone", "node-lost"))
    if reasons and said(evidence, "oom-kill", "disk-full"):
        reasons.append(Reason("took_too_much", "the eviction was for what the job itself used"))
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    by = field(evidence, ("preempted",), "by")
    return f"Its machine was taken away by {by or 'the scheduler'}: the program did nothing wrong."


def facts(evidence: Evidence) -> Facts:
    return {"by": field(evidence, ("preempted",), "by")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    systems = {one.system for one in evidence.mentions or ()}
    if "batch system" in systems:
        yield Step(
            text="Slurm: let it be requeued, and catch the warning:",
            command="sbatch --requeue --signal=B:TERM@90 JOB.sh",
        )
    if "kubernetes" in systems:
        yield Step(
            text="Kubernetes: give it a PriorityClass or a PodDisruptionBudget, or tolerate the loss with a Job's backoffLimit"
        )
    if "spark" in systems:
        yield Step(
            text="Spark: have blocks moved away first:",
            command="--conf spark.decommission.enabled=true --conf spark.storage.decommission.enabled=true",
        )
    yield Step(text="write checkpoints often enough, and start from the last one")
    yield Step(text="or pay for machines that stay (on-demand instead of spot)")


CAUSE = Cause(
    id="preemption",
    title="The machine was taken away",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "said_so": 6.0,
        "node_gone": 2.4,
        "took_too_much": -4.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:preemption",),
    near_misses=("text:external-kill", "text:out-of-memory"),
)
