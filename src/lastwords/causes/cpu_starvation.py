"""The process did not get enough of the CPU.

More threads and processes than cores, or a container with a small CPU quota: heartbeats come too late, start-up
takes minutes, and somebody gives the worker up as dead. The worker itself did nothing wrong. Ten workers with
OpenMP threads on every core each are the usual reason; a thread that holds the GIL for seconds is another.

Words about throttling, an unresponsive event loop or a stalled scheduler speak for it. A warning that there are more
workers than cores is a hint, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason, said
from lastwords.evidence.model import Evidence

MOSTLY = 0.5
NEARLY_ALWAYS = 0.8
STOLEN = 0.3


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "starved_said", "cpu-starved"), *reason(evidence, "warned", "cpu-warning")]
    if reasons and said(evidence, "work-timeout", "network-failure", "heartbeat-lost", "no-progress", "lost"):
        reasons.append(Reason("too_late", "and somebody waited for it in vain"))
    yield from nothing_said([*reasons, *_watched(evidence)])


def _watched(evidence: Evidence) -> Iterator[Reason]:
    hang, cpu = evidence.hang, evidence.machine.cpu if evidence.machine else None
    if hang is not None and hang.waited is not None and hang.waited > MOSTLY:
        yield Reason(
            "ready_and_waiting" if hang.waited > NEARLY_ALWAYS else "often_waiting",
            f"its threads were ready to run {hang.waited:.0%} of the time, and got no CPU",
        )
    if cpu is not None and cpu.throttled is not None and cpu.throttled > MOSTLY:
        yield Reason("throttled", f"its group was not let run for {cpu.throttled:.0%} of its life")
    if cpu is not None and cpu.stolen is not None and cpu.stolen > STOLEN:
        yield Reason(
            "stolen", f"the host of this virtual machine kept {cpu.stolen:.0%} of its CPU time to itself"
        )


def sentence(_evidence: Evidence) -> str:
    return "It did not get the CPU often enough to answer in time."


def facts(evidence: Evidence) -> Facts:
    cpu, hang = evidence.machine.cpu if evidence.machine else None, evidence.hang
    return {
        "seconds": field(evidence, ("cpu-starved",), "seconds"),
        "waited": hang.waited if hang else None,
        "throttled": cpu.throttled if cpu else None,
        "stolen": cpu.stolen if cpu else None,
    }


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="one thread per worker, before NumPy and torch are imported:",
        command="export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1",
    )
    yield Step(
        text="as many workers as there are cores for this container:",
        command="python -c 'import os; print(len(os.sched_getaffinity(0)))'",
    )
    yield Step(text="see whether the cgroup throttles (nr_throttled):", command="cat /sys/fs/cgroup/cpu.stat")
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
        "throttled": 2.4,
        "stolen": 1.6,
        "starved_said": 4.0,
        "warned": 1.2,
        "too_late": 1.1,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:cpu-starvation",),
    near_misses=("text:hang", "text:time-limit"),
    fallback=1,
)
