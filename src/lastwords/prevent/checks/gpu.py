"""GPUs: the driver, what torch was built for against what they are, and their memory's errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import gpus, sizes
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.gpus import Gpu
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient


@dataclass(frozen=True, slots=True)
class Gpus:
    found: tuple[Gpu, ...]
    problem: str | None
    """The driver's own."""
    has_driver: bool
    cuda: str | None
    """That torch was built with."""
    built_for: tuple[str, ...]


def measure(patient: Patient) -> Gpus:
    has_driver = os.path.exists("/proc/driver/nvidia/version")
    try:
        found = gpus.ask()
    except gpus.GpusUnknown as error:
        return Gpus((), str(error), has_driver, None, ())
    asked = patient.interpreter if found else None
    torch = asked.torch if asked else None
    return Gpus(found, None, has_driver, torch.cuda if torch else None, torch.built_for if torch else ())


def judge(found: Gpus, job: Job) -> Iterator[Finding]:
    del job
    if found.problem is not None:
        yield Finding(
            severity="risk",
            says="the GPU driver does not answer",
            measured=(found.problem,),
            fixes=(Fix("see what it says", "nvidia-smi"),),
        )
        return
    if not found.found:
        driver = ", though its driver is loaded" if found.has_driver else ""
        yield fine(f"no GPU here{driver}", "nvidia-smi")
        return
    bad = [finding for gpu in found.found for finding in _judge(gpu, found)]
    yield from bad
    if not bad:
        first = found.found[0]
        yield fine(
            f"{len(found.found)} × {first.name}, driver {first.driver}",
            *(_words(gpu) for gpu in found.found),
            f"torch is built with CUDA {found.cuda} for {', '.join(found.built_for)}"
            if found.cuda
            else "no torch asked",
        )


def _words(gpu: Gpu) -> str:
    errors = f", {gpu.uncorrected_errors} uncorrected errors" if gpu.uncorrected_errors is not None else ""
    memory = sizes.words(gpu.memory) if gpu.memory else "?"
    return f"{gpu.name}: {memory}, compute capability {gpu.compute_capability}{errors} (nvidia-smi)"


def _judge(gpu: Gpu, found: Gpus) -> Iterator[Finding]:
    if gpu.compute_capability and found.built_for and not runs_on(found.built_for, gpu.compute_capability):
        yield Finding(
            severity="kills",
            says=f"torch has no kernels for {gpu.name} (compute capability {gpu.compute_capability})",
            measured=(_words(gpu), f"built for {', '.join(found.built_for)} (torch.cuda.get_arch_list)"),
            fixes=(Fix("install a torch that is built for it: https://pytorch.org/get-started"),),
        )
    if gpu.uncorrected_errors or gpu.pages_to_retire:
        yield Finding(
            severity="risk",
            says=f"the memory of {gpu.name} has errors that could not be corrected",
            measured=(
                _words(gpu),
                "pages wait to be retired" if gpu.pages_to_retire else "since the driver was loaded",
            ),
            fixes=(Fix("reset it, or drain the host and have it replaced", "nvidia-smi --gpu-reset"),),
        )


def runs_on(built_for: tuple[str, ...], capability: str) -> bool:
    """Machine code (sm) runs on its own major version from its minor upwards; PTX (compute) on anything newer."""
    major, _, minor = capability.partition(".")
    have = (int(major), int(minor or 0))
    for name in built_for:
        kind, _, digits = name.partition("_")
        digits = digits.rstrip("abcdefghijklmnopqrstuvwxyz")
        if not digits.isdecimal():
            continue
        built = (int(digits[:-1]), int(digits[-1]))
        if (kind == "compute" and have >= built) or (have[0] == built[0] and have[1] >= built[1]):
            return True
    return False


CHECK = Check("gpu", "GPUs, driver and CUDA", measure, judge)
