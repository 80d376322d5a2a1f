"""A kernel on the GPU touched memory that it must not touch.

An index out of range, a tensor that was freed, a pointer of another device: the kernel is ended and the context with
it; every later CUDA call fails as well. The error is reported at some later call, so the Python line in the
traceback is usually innocent.

A failed check in the kernel (device-side assert) and failing hardware (Xid 48, 79, ECC) look alike and have causes of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, field, from_text, nothing_said, reason, said
from lastwords.evidence.model import Evidence

KNOWN_ABORTS = (
    "heap-corruption",
    "stack-smashing",
    "cxx-terminate",
    "fatal-python",
    "assert-failed",
    "work-timeout",
)


_AMD = re.compile(r"fault by GPU node|\bHIP\b|hipError")


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "cuda-illegal"), *reason(evidence, "driver_said", "gpu-fault")]
    if not reasons:
        reasons.extend(reason(evidence, "step_failed", "gpu-step-failed"))
    if (
        bare(evidence, "SIGABRT")
        and from_text(evidence)
        and not reasons
        and not said(evidence, *KNOWN_ABORTS)
    ):
        reasons.append(
            Reason("aborted", "it aborted without a message that is known; CUDA errors end so in C++")
        )
    if reasons and said(evidence, "cuda-assert"):
        reasons.append(Reason("assert_failed", "a check in a kernel failed before: that is the closer cause"))
    if reasons and said(evidence, "hardware-error"):
        reasons.append(Reason("hardware_said", "the hardware reported errors as well"))
    yield from nothing_said(reasons)


def sentence(_evidence: Evidence) -> str:
    return "A kernel on the GPU touched memory that it must not touch; the line reported is later than the fault."


def facts(evidence: Evidence) -> Facts:
    return {"xid": field(evidence, ("gpu-fault",), "xid")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    if any(_AMD.search(one.quote) for one in said(evidence, "cuda-illegal")):
        yield Step(
            text="have the error reported where it happens:",
            command="AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 python YOUR_JOB.py",
        )
        yield Step(text="check indices (labels, token ids, gather and scatter) on the CPU first")
        yield Step(
            text="if other jobs fail on that GPU too, ask the driver:",
            command="sudo dmesg -T | grep -iE 'amdgpu|ras'",
        )
        return
    yield Step(
        text="have the error reported where it happens:", command="CUDA_LAUNCH_BLOCKING=1 python YOUR_JOB.py"
    )
    yield Step(
        text="find the kernel and the address:",
        command="compute-sanitizer --tool memcheck python YOUR_JOB.py",
    )
    yield Step(
        text="check indices (labels, token ids, gather and scatter) on the CPU first: the same code there raises an IndexError"
    )
    yield Step(
        text="if other jobs fail on that GPU too, ask the driver:", command="sudo dmesg -T | grep -i xid"
    )


CAUSE = Cause(
    id="cuda-illegal-access",
    title="A GPU kernel touched memory that it must not touch",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "said_so": 5.6,
        "driver_said": 3.6,
        "step_failed": 2.7,
        "aborted": 0.6,
        "assert_failed": -3.0,
        "hardware_said": -2.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("gpu-illegal-access", "gpu-misaligned-address", "text:cuda-illegal-access"),
    near_misses=("text:cuda-assert", "text:hardware-fault"),
)
