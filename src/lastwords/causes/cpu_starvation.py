"""The process did not get enough of the CPU.

More threads and processes than cores, or a container with a small CPU quota: heartbeats come too late, start-up
takes minutes, and somebody gives the worker up as dead. The worker itself did nothing wrong. Ten workers with
OpenMP threads on every core each are the usual reason; a thread that holds the GIL for seconds is another.

What the watcher measures decides: for how much of the time its threads were ready to run and got no CPU, and for how
much its group was not let run. A group that is throttled does not starve a worker that sleeps. Words about throttling, an
unresponsive event loop or a stalled scheduler speak for it, too. A warning that there are more workers than cores is a
hint, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason, said
from lastwords.evidence.model import CpuTime, Evidence, Hang

LITTLE = 0.05
PARTLY = 0.2
MOSTLY = 0.5
LATE = ("work-timeout", "network-failure", "heartbeat-lost", "no-progress", "lost")
NEARLY_ALWAYS = 0.8
STOLEN = 0.3
CROWDED = 2.0
"""Tasks for each CPU that want to run."""


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "starved_said", "cpu-starved"), *reason(evidence, "warned", "cpu-warning")]
    reasons.extend(reason(evidence, "loop_blocked", "loop-blocked"))
    if reasons and said(evidence, *LATE):
        reasons.append(Reason("too_late", "and somebody waited for it in vain"))
    elif said(evidence, "heartbeat-lost"):
        reasons.extend(reason(evidence, "not_heard", "heartbeat-lost"))
    yield from nothing_said([*reasons, *_of_the_hang(evidence), *_of_the_machine(evidence)])


def _of_the_hang(evidence: Evidence) -> Iterator[Reason]:
    hang = evidence.hang
    if hang is None:
        return
    if hang.waited is not None and hang.waited > MOSTLY:
        yield Reason(
            "ready_and_waiting" if hang.waited > NEARLY_ALWAYS else "often_waiting",
            f"its threads were ready to run {hang.waited:.0%} of the time, and got no CPU",
        )
    if hang.throttled is not None and _is_kept_from_running(hang, hang.throttled):
        quota = f", which may use {hang.quota:g} CPUs," if hang.quota is not None else ""
        yield Reason(
            "kept_from_running", f"its group{quota} was not let run {hang.throttled:.0%} of that time"
        )


def _is_kept_from_running(hang: Hang, throttled: float) -> bool:
    """On a machine that is busy besides, part of its wait is not the group's doing; it has then used up its quota."""
    ran, waited, quota = hang.ran or 0.0, hang.waited or 0.0, hang.quota
    used_up = quota is not None and ran >= NEARLY_ALWAYS * quota and waited > MOSTLY
    return _wanted_cpu(hang) and (throttled > MOSTLY or used_up)


def _wanted_cpu(hang: Hang) -> bool:
    """One that sleeps is not kept from anything by its group's quota."""
    used = (hang.ran or 0.0) + (hang.waited or 0.0)
    return hang.blocked_in == "running" or hang.state == "R" or used > MOSTLY


def _of_the_machine(evidence: Evidence) -> Iterator[Reason]:
    cpu, hang = evidence.machine.cpu if evidence.machine else None, evidence.hang
    if cpu is None or (hang is not None and not _wanted_cpu(hang)):
        return
    is_late = hang is None and bool(said(evidence, "work-timeout"))
    busy = f", and the machine is busy besides: load {cpu.load:.0f}" if _is_crowded(cpu) else ""
    if cpu.throttled is not None and cpu.throttled > _enough(cpu, is_late=is_late):
        yield Reason("throttled", f"its group was not let run for {cpu.throttled:.0%} of its life{busy}")
        if is_late:
            yield Reason("throttled_and_late", "and somebody gave up waiting for its work")
    if cpu.stolen is not None and cpu.stolen > STOLEN:
        yield Reason(
            "stolen", f"the host of this virtual machine kept {cpu.stolen:.0%} of its CPU time to itself"
        )


def _enough(cpu: CpuTime, *, is_late: bool) -> float:
    """How much throttling counts. A group that has to wait for others first does not use up what it may so soon."""
    if not is_late:
        return MOSTLY
    return LITTLE if _is_crowded(cpu) else PARTLY


def _is_crowded(cpu: CpuTime) -> bool:
    return cpu.load is not None and bool(cpu.cpus) and cpu.load > CROWDED * (cpu.cpus or 1)


def _throttled(evidence: Evidence) -> float | None:
    """While it was waited for, else in its life."""
    hang, cpu = evidence.hang, evidence.machine.cpu if evidence.machine else None
    if hang is not None and hang.throttled is not None:
        return hang.throttled
    return cpu.throttled if cpu else None


def _quota(evidence: Evidence) -> float | None:
    hang, cpu = evidence.hang, evidence.machine.cpu if evidence.machine else None
    return (hang.quota if hang else None) or (cpu.quota if cpu else None)


def sentence(evidence: Evidence) -> str:
    throttled, quota = _throttled(evidence), _quota(evidence)
    hang = evidence.hang
    if hang is not None and hang.waited is not None and hang.waited > MOSTLY:
        may = f"; its group may use {quota:g} CPUs" if quota is not None and hang.throttled else ""
        return f"It was ready to run {hang.waited:.0%} of the time, and got no CPU{may}."
    if not throttled or quota is None:
        return "It did not get the CPU often enough to answer in time."
    return f"Its group may use {quota:g} CPUs, and was not let run {throttled:.0%} of the time: its work came too late."


def facts(evidence: Evidence) -> Facts:
    cpu, hang = evidence.machine.cpu if evidence.machine else None, evidence.hang
    return {
        "seconds": field(evidence, ("cpu-starved",), "seconds"),
        "waited": hang.waited if hang else None,
        "throttled": _throttled(evidence),
        "quota": _quota(evidence),
        "stolen": cpu.stolen if cpu else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    throttled, quota = _throttled(evidence), _quota(evidence)
    if quota is not None and throttled:
        yield Step(
            text=f"give its container more than {quota:g} CPUs (Docker: --cpus; Kubernetes: resources.limits.cpu; "
            "Slurm: --cpus-per-task), or run fewer workers in it"
        )
    yield Step(
        text="one thread per worker, before NumPy and torch are imported:",
        command="export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1",
    )
    if quota is None:
        yield Step(
            text="as many workers as there are cores for this container:",
            command="python -c 'import os; print(len(os.sched_getaffinity(0)))'",
        )
    yield Step(text="see whether the cgroup throttles (nr_throttled):", command="cat /sys/fs/cgroup/cpu.stat")
    if quota is None:
        yield Step(
            text="Kubernetes: raise resources.limits.cpu, or leave it out and set requests.cpu; Docker: --cpus; Slurm: --cpus-per-task"
        )


CAUSE = Cause(
    id="cpu-starvation",
    title="It did not get enough of the CPU",
    doc=__doc__,
    needs=("hang", "machine", "mentions", "status"),
    prior=-3.0,
    weights={
        "ready_and_waiting": 4.2,
        "often_waiting": 2.2,
        "kept_from_running": 4.4,
        "throttled": 2.4,
        "throttled_and_late": 6.8,
        "stolen": 1.6,
        "starved_said": 4.0,
        "warned": 1.2,
        "loop_blocked": 1.7,
        "not_heard": 0.9,
        "too_late": 1.1,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("cpu-starvation", "cpu-starved-loader", "text:cpu-starvation"),
    near_misses=("sleeps-with-little-cpu", "text:hang", "text:time-limit"),
    fallback=1,
)
