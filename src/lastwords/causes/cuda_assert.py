"""A check inside a GPU kernel failed.

Kernels check some of their input: labels within the number of classes, indices within the tensor, probabilities that
are no NaN. A failed check ends the context, and every later call reports "device-side assert triggered". The line of
Python is innocent; the line with the condition and the kernel's name says what was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "cuda-assert")]
    if field(evidence, ("cuda-assert",), "condition"):
        reasons.append(
            Reason("condition_known", f"the check was: {field(evidence, ('cuda-assert',), 'condition')}")
        )
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    condition = field(evidence, ("cuda-assert",), "condition")
    return (
        f"A check in a GPU kernel failed: {condition}."
        if condition
        else "A check in a GPU kernel failed; which one, a line above may say."
    )


def facts(evidence: Evidence) -> Facts:
    return {"condition": field(evidence, ("cuda-assert",), "condition")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    condition = field(evidence, ("cuda-assert",), "condition") or ""
    if "n_classes" in condition or "cur_target" in condition:
        yield Step(
            text="check the labels: each must be at least 0 and below the number of outputs (or ignore_index)"
        )
    elif "ndex" in condition:
        yield Step(
            text="check the indices: token ids against the embedding's size, gather and scatter against the tensor's"
        )
    yield Step(text="run the failing batch on the CPU: it raises a plain IndexError with the true line")
    yield Step(
        text="or have it reported where it happens:", command="CUDA_LAUNCH_BLOCKING=1 python YOUR_JOB.py"
    )


CAUSE = Cause(
    id="cuda-assert",
    title="A check in a GPU kernel failed",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 6.0,
        "condition_known": 0.5,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("gpu-index-out-of-range", "text:cuda-assert"),
    near_misses=("text:cuda-illegal-access", "text:gpu-out-of-memory"),
)
