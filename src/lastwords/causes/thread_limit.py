"""No more threads or processes may be made.

pthread_create or fork() got EAGAIN: the user's limit (ulimit -u), the container's (pids.max) or the machine's is
reached. OpenBLAS and OpenMP make one thread per core in every worker, so 64 workers on 64 cores are 4096 threads. If
RLIMIT_NPROC is large or unlimited, the container's pids limit is the one.

"can't start new thread" alone may also be an old container runtime that refuses the clone3 system call: see `seccomp`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, from_text, nothing_said, reason, said
from lastwords.causes.words import growth_of
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "no-threads"), *reason(evidence, "refused", "threads-refused")]
    if reasons and not from_text(evidence):
        reasons.append(Reason("seen_here", "Python itself was refused the thread, on this machine"))
    if reasons and said(evidence, "old-runtime", "unconfined-works"):
        reasons.append(
            Reason("refused_otherwise", "the container's runtime may have refused it, not a limit")
        )
    leak = growth_of(evidence, "threads")
    if leak is not None:
        text = f"it started {leak.per_item:.1f} threads per item over {leak.items} items, and they stayed"
        reasons.append(Reason("threads_leak", text))
    yield from nothing_said(reasons)


def sentence(_evidence: Evidence) -> str:
    return "It could not make another thread or process: a limit is reached."


def facts(evidence: Evidence) -> Facts:
    leak = growth_of(evidence, "threads")
    return {
        "by": field(evidence, ("no-threads",), "by"),
        "per_item": leak.per_item if leak else None,
        "limit": leak.limit if leak else None,
    }


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="fewer threads in each worker:",
        command="export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
    )
    yield Step(
        text="see both limits:", command="ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current"
    )
    yield Step(
        text="Docker: --pids-limit=-1; Kubernetes: podPidsLimit of the kubelet; systemd: TasksMax=infinity; Slurm: ask the administrator"
    )
    yield Step(
        text="if no limit is near, the container runtime is too old for this image's glibc: update Docker to 20.10.10 or later"
    )


CAUSE = Cause(
    id="thread-limit",
    title="No more threads or processes may be made",
    doc=__doc__,
    needs=("mentions", "exception"),
    prior=-3.0,
    weights={
        "said_so": 6.0,
        "refused": 2.6,
        "refused_otherwise": -1.6,
        "seen_here": 1.6,
        "threads_leak": 1.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("thread-limit", "text:thread-limit"),
    near_misses=("text:too-many-open-files", "text:seccomp"),
)
