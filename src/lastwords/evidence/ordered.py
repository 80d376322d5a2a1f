"""Who told the job to stop, as a statement: the signals that `lastwords run` was sent before the process ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lastwords.evidence import signals
from lastwords.evidence.missing import HOW_IT_ENDED
from lastwords.evidence.model import Evidence, Mention, Missing
from lastwords.watch.orders import WARNING, Order, stopping

SOURCE = "the signals that `lastwords run` was sent"
SCHEDULERS = {
    "slurmstepd": "Slurm",
    "slurmd": "Slurm",
    "pbs_mom": "PBS",
    "sge_shepherd": "Grid Engine",
    "sge_execd": "Grid Engine",
    "sbatchd": "LSF",
    "condor_starter": "HTCondor",
    "condor_startd": "HTCondor",
    "kubelet": "Kubernetes",
}
"""By the names of those of their processes that end jobs, as /proc/PID/comm has them: 15 letters at most."""
BATCH_SYSTEM, KUBERNETES, PROCESS = "batch system", "kubernetes", "process"
END_OF_TIME = "SLURM_JOB_END_TIME"
NEAR_THE_END = 30.0
"""Seconds: Slurm looks for jobs whose time is over every half minute."""


def with_orders(evidence: Evidence, orders: Sequence[Order]) -> Evidence:
    order = stopping(orders)
    # A log is read in another way than a record, and statements alone would look like one.
    if order is None or evidence.events is None:
        return evidence
    mention = _mention(evidence, order, orders)
    return msgspec.structs.replace(
        evidence,
        mentions=(*(evidence.mentions or ()), mention),
        missing=tuple(map(_told_better, evidence.missing)),
    )


def _told_better(one: Missing) -> Missing:
    """`lastwords run` was there, and did not see the end: it was killed as well."""
    together = "none to collect: `lastwords run` was killed together with it"
    return msgspec.structs.replace(one, how_to_collect=together) if one.what == HOW_IT_ENDED else one


def _mention(evidence: Evidence, order: Order, orders: Sequence[Order]) -> Mention:
    scheduler = _scheduler(order)
    name = order.name or (
        "somebody outside of this container" if order.sender == 0 else "a process that is gone"
    )
    pid = f", pid {order.sender}" if order.sender else ""
    before = f", {max(0.0, evidence.time - order.time):.1f} s before its end" if evidence.time else ""
    warned = next((one for one in orders if one.signal in WARNING and one.sender == order.sender), None)
    first = f"{signals.name_of(warned.signal)} and then " if warned is not None else ""
    fields = {"by": scheduler or f"{name}{pid}", "signal": signals.name_of(order.signal)}
    return Mention(
        source=SOURCE,
        kind=_kind(order, scheduler),
        quote=f"{first}{signals.name_of(order.signal)} from {name}{pid}{before}",
        line=0,
        system=_system(scheduler),
        fields={**fields, "warned": signals.name_of(warned.signal)} if warned is not None else fields,
    )


def _scheduler(order: Order) -> str | None:
    if order.sender == 0 and "KUBERNETES_SERVICE_HOST" in order.orchestrator:
        return "Kubernetes"
    return SCHEDULERS.get(order.name or "")


def _kind(order: Order, scheduler: str | None) -> str:
    end = order.orchestrator.get(END_OF_TIME, "")
    if scheduler == "Slurm" and end.isdecimal() and order.time >= int(end) - NEAR_THE_END:
        return "time-limit"
    return "scheduler-stop" if scheduler is not None else "stop-request"


def _system(scheduler: str | None) -> str:
    if scheduler is None:
        return PROCESS
    return KUBERNETES if scheduler == "Kubernetes" else BATCH_SYSTEM
