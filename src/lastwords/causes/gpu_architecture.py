"""The program was built for other GPUs than this one.

A CUDA library carries code for some architectures (sm_80, sm_90, ...) and perhaps PTX that the driver can translate.
On a card that is newer or older than all of them there is nothing to run: "no kernel image is available". The same
build works on the neighbour's card.

A driver that is too old for the CUDA version is a mismatch of versions, not this.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "said_so", "gpu-arch")])


def sentence(evidence: Evidence) -> str:
    have = field(evidence, ("gpu-arch",), "have")
    return f"The program was built without code for this GPU{f' ({have})' if have else ''}."


def facts(evidence: Evidence) -> Facts:
    return {"architecture": field(evidence, ("gpu-arch",), "have")}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="compare what the build has with what the card is:",
        command="python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'",
    )
    yield Step(
        text="install a build of a CUDA version that knows the card, for torch the newest, for extensions from source:",
        command="TORCH_CUDA_ARCH_LIST=native pip install --no-binary :all: --no-build-isolation PACKAGE",
    )
    yield Step(
        text="or run it on a GPU of the kind it was built for (Kubernetes: nvidia.com/gpu.product; Slurm: --constraint)"
    )


CAUSE = Cause(
    id="gpu-architecture",
    title="The build has no code for this GPU",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 6.2,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:gpu-architecture",),
    near_misses=("text:version-mismatch", "text:cuda-illegal-access"),
)
