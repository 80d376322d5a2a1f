"""The memory of the GPU ran out.

The allocator could not get a block of the size that it needed: the model, its activations and the cache are larger
than the card, something else uses the card, or memory is there but in pieces. Later messages ("worker process died",
"engine failed to start") are only messengers.

The host's memory is another cause; the sizes in the message belong to the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason, said
from lastwords.evidence.model import Evidence

_XLA = re.compile(r"jaxlib|XlaRuntimeError|xla_extension")


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "gpu-oom")]
    if not reasons:
        reasons = [*reason(evidence, "handle_refused", "gpu-handle-refused")]
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    size = field(evidence, ("gpu-oom",), "size")
    return f"The GPU had no {size} left." if size else "The memory of the GPU ran out."


def facts(evidence: Evidence) -> Facts:
    return {"asked_for": field(evidence, ("gpu-oom",), "size")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    if any(_XLA.search(one.quote) for one in said(evidence, "gpu-oom")):
        yield Step(
            text="see who else uses the card:",
            command="nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        )
        yield Step(
            text="JAX takes three quarters of the card at its start; let it take what it needs, or more at once:",
            command="export XLA_PYTHON_CLIENT_PREALLOCATE=false  # or XLA_PYTHON_CLIENT_MEM_FRACTION=.95",
        )
        yield Step(text="a smaller batch, jax.checkpoint (remat), bf16, or more cards (pjit)")
        return
    yield Step(
        text="see who else uses the card:",
        command="nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    )
    yield Step(
        text="a smaller batch, gradient accumulation, bf16, activation checkpointing; torch.no_grad() in evaluation"
    )
    yield Step(
        text="if much is reserved and little allocated, it is in pieces:",
        command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )
    yield Step(text="vLLM: lower --gpu-memory-utilization or --max-model-len; Ray: num_gpus per actor")


CAUSE = Cause(
    id="gpu-out-of-memory",
    title="The memory of the GPU ran out",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 6.2,
        "handle_refused": 2.6,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("gpu-out-of-memory", "gpu-too-full-for-cublas", "text:gpu-out-of-memory"),
    near_misses=("text:out-of-memory", "text:cuda-assert"),
)
