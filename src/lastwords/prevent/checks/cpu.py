"""The CPU: what it has, and what the system lets programs use of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import features, require
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.record import host


@dataclass(frozen=True, slots=True)
class Cpu:
    model: str | None
    architecture: str
    listed: frozenset[str]
    """By the kernel, in /proc/cpuinfo."""
    answered: frozenset[str] | None
    """By the CPU itself (CPUID), and switched on (XCR0); None: nobody could ask."""


def measure(patient: Patient) -> Cpu:
    del patient
    found = host.facts()
    return Cpu(
        found["cpu_model"],
        found["architecture"],
        frozenset(found["features"]),
        require.answered_features(),
    )


def judge(found: Cpu, job: Job) -> Iterator[Finding]:
    del job
    usable = require.usable(found.listed, found.answered)
    level = features.level_of(usable) if found.architecture == "x86_64" else found.architecture
    name = f"{found.model or 'CPU'} ({level})"
    source = "/proc/cpuinfo, CPUID and XCR0" if found.answered is not None else "/proc/cpuinfo"
    off = sorted(found.listed - usable)
    if off:
        yield Finding(
            severity="risk",
            says=f"/proc/cpuinfo lists {', '.join(off)}, and programs cannot use it here",
            measured=(f"{name}: CPUID does not have it, or XCR0 does not switch it on",),
            fixes=(
                Fix("under an emulator the list is that of the machine below: trust what is said here"),
                Fix("else look for what switches it off", "cat /proc/cmdline  # noxsave, clearcpuid=…"),
            ),
            facts={"off": tuple(off), "level": level},
        )
        return
    yield fine(name, f"{len(usable)} features ({source})", level=level, model=found.model)


CHECK = Check("cpu", "the CPU and what is enabled of it", measure, judge)
