"""The machine was taken away for somebody else.

A job of higher priority, a spot machine that the cloud wants back, a pod that was evicted, a node that is drained:
nothing is wrong with the program, and the next attempt elsewhere works. What helps is a checkpoint and a retry.

It is told from a kill by an operator by the words of the scheduler, or by who sent SIGTERM: `lastwords run` sees whether
that was a scheduler's own process (Slurm's slurmstepd, Kubernetes from outside of the pod), and whether it had warned
the job before. Why the scheduler did so, its log alone knows: somebody may have cancelled the job. An eviction for want of
memory or disk is not this cause: there the job itself took too much.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, first, nothing_said, reason, said
from lastwords.evidence import signals
from lastwords.evidence.model import Evidence

KINDS = ("preempted", "scheduler-stop")


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "preempted")]
    if said(evidence, "node-lost"):
        reasons.extend(reason(evidence, "node_gone", "node-lost"))
    reasons.extend(_heard(evidence))
    if not reasons:
        reasons = [*reason(evidence, "not_heard", "heartbeat-lost")]
    if reasons and said(evidence, "oom-kill", "disk-full"):
        reasons.append(Reason("took_too_much", "the eviction was for what the job itself used"))
    yield from nothing_said(reasons)


def _heard(evidence: Evidence) -> Iterator[Reason]:
    """What `lastwords run` was sent, if the process can have died of that: it was killed, or nobody saw how it ended."""
    order, status = first(evidence, "scheduler-stop"), evidence.status
    was_killed = status is None or signals.family_of(status.signal) == "kill"
    if order is None or not was_killed or evidence.fault is not None:
        return
    yield Reason("scheduler_stopped_it", f"{order.fields['by']} told the job to stop: {order.quote}")
    if "warned" in order.fields:
        yield Reason("warned_before", f"it had warned the job before, with {order.fields['warned']}")


def sentence(evidence: Evidence) -> str:
    by = field(evidence, KINDS, "by")
    if first(evidence, "preempted") is None and by is not None:
        return (
            f"{by} told the job to stop, as it does to take the machine away: the program did nothing wrong."
        )
    return f"Its machine was taken away by {by or 'the scheduler'}: the program did nothing wrong."


def facts(evidence: Evidence) -> Facts:
    return {"by": field(evidence, KINDS, "by"), "warned": field(evidence, KINDS, "warned")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    systems = {one.system for one in evidence.mentions or ()}
    if first(evidence, "scheduler-stop") is not None:
        yield Step(text="ask the scheduler why:", command=_why(evidence, systems))
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


def _why(evidence: Evidence, systems: set[str]) -> str:
    if "kubernetes" in systems:
        return "kubectl get events --sort-by=.lastTimestamp | grep -iE 'preempt|evict|kill'"
    place = evidence.machine.place if evidence.machine else None
    job = place.orchestrator.get("SLURM_JOB_ID", "JOB") if place else "JOB"
    return f"sacct -j {job} --format=JobID,State,ExitCode,End,Reason"


CAUSE = Cause(
    id="preemption",
    title="The machine was taken away",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "said_so": 6.0,
        "node_gone": 2.4,
        "scheduler_stopped_it": 3.8,
        "warned_before": 0.6,
        "took_too_much": -4.0,
        "not_heard": 0.9,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("preempted", "preempted-after-grace", "text:preemption"),
    near_misses=("terminated-from-outside", "text:external-kill", "text:out-of-memory"),
)
