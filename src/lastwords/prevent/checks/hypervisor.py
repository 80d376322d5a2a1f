"""A virtual machine may hide what its CPU has: hosts of one model then differ, and a wheel dies on some of them.

This is how the same image works on one node and ends with exit code 132 on the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastwords.prevent import features
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.record import host
from lastwords.watch.proc import read_text

MODELS = Path(__file__).parent.parent / "data" / "cpu_models.json"
VENDOR = "/sys/class/dmi/id/sys_vendor"


@dataclass(frozen=True, slots=True)
class Guest:
    is_virtual: bool
    vendor: str
    kind: str | None
    """The microarchitecture that its family and model number stand for."""
    usual: frozenset[str]
    """What such a CPU has."""
    listed: frozenset[str]
    """What it shows (/proc/cpuinfo)."""


def measure(patient: Patient) -> Guest:
    del patient
    facts = host.facts()
    kind = kind_of(facts["cpu_vendor"], facts["cpu_family"], facts["cpu_number"])
    listed = frozenset(facts["features"])
    return Guest("hypervisor" in listed, read_text(VENDOR).strip(), kind, usual_features(kind), listed)


def kind_of(vendor: str | None, family: int | None, number: int | None) -> str | None:
    table: dict[str, Any] = json.loads(MODELS.read_text("utf-8"))
    known = table.get(vendor or "", {})
    kinds = known.get(str(family), {}) if isinstance(known, dict) else {}
    return next((kind for kind, numbers in kinds.items() if number in numbers), None)


def usual_features(kind: str | None) -> frozenset[str]:
    """From archspec's database; empty: not known there."""
    try:
        import archspec.cpu
    except ImportError:
        return frozenset()
    target = archspec.cpu.TARGETS.get(kind or "")
    return frozenset(map(features.canonical, target.features)) if target is not None else frozenset()


def judge(found: Guest, job: Job) -> Iterator[Finding]:
    del job
    if not found.is_virtual:
        yield fine("no hypervisor: the CPU is seen as it is", "no `hypervisor` flag (/proc/cpuinfo)")
        return
    hidden = sorted((found.usual & frozenset(features.known())) - found.listed)
    where = f"a virtual machine{f' of {found.vendor}' if found.vendor else ''}"
    if not hidden:
        checked = (
            f", nothing hidden of what {found.kind} has" if found.usual else ", its model is not known to us"
        )
        yield fine(where + checked, "`hypervisor` flag, family and model (/proc/cpuinfo)")
        return
    yield Finding(
        severity="risk",
        says=f"the hypervisor hides {', '.join(hidden)} of this {found.kind}: a sister host may have it, this one not",
        measured=(
            f"{where}: its family and model are those of {found.kind}",
            f"not usable: {', '.join(hidden)}",
        ),
        fixes=(
            Fix("see which libraries need it", "lastwords scan"),
            Fix("pass the host's CPU through (libvirt: <cpu mode='host-passthrough'/>, qemu: -cpu host)"),
        ),
        facts={"hidden": tuple(hidden), "kind": found.kind},
    )


CHECK = Check("hypervisor", "features that a hypervisor hides", measure, judge)
