"""CUDA was used in a process that was forked from one that had used it before.

A CUDA context does not survive fork(). If the parent touched the GPU (a tensor, `torch.cuda.device_count()` in some
versions, a library at import), a forked worker cannot use it: torch says so, other libraries report an
initialization error or crash.

Spawned workers start fresh and may use the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason
from lastwords.evidence.model import Evidence

CHILD = "multiprocessing/process.py"


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "cuda-fork")]
    if not reasons:
        reasons = [*reason(evidence, "not_initialised", "cuda-uninitialised")]
        if reasons and _in_child(evidence):
            reasons.append(
                Reason("in_a_child", "and it happened in a process that multiprocessing had started")
            )
    yield from nothing_said(reasons)


def _in_child(evidence: Evidence) -> bool:
    """By its frames: the log of a child names the module that runs it."""
    frames = evidence.exception.frames if evidence.exception else ()
    return any(CHILD in frame.file.replace("\\", "/") for frame in frames)


def sentence(_evidence: Evidence) -> str:
    return "A forked worker used CUDA, which its parent had used before: that cannot work."


def facts(evidence: Evidence) -> Facts:
    return {"line": found.line if (found := first(evidence, "cuda-fork")) else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="start workers by spawn, before anything touches the GPU:",
        command="torch.multiprocessing.set_start_method('spawn', force=True)",
    )
    yield Step(
        text="DataLoader: keep tensors on the CPU in the dataset and collate_fn, and move batches in the main process; or multiprocessing_context='spawn'"
    )
    yield Step(text="vLLM:", command="export VLLM_WORKER_MULTIPROC_METHOD=spawn")


CAUSE = Cause(
    id="cuda-in-fork",
    title="CUDA was used after a fork",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 6.2,
        "not_initialised": 2.2,
        "in_a_child": 2.6,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("cuda-in-fork", "text:cuda-in-fork"),
    near_misses=("text:cuda-illegal-access", "text:python-exception"),
)
