"""Limits of the process that jobs die of without understanding: address space, stack, file size, locked memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping

from lastwords.prevent import sizes
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient

USUAL_STACK = 8 << 20
NAMES = {
    "address space": (resource.RLIMIT_AS, "v"),
    "data": (resource.RLIMIT_DATA, "d"),
    "stack": (resource.RLIMIT_STACK, "s"),
    "file size": (resource.RLIMIT_FSIZE, "f"),
}
# torch with CUDA reserves tens of gigabytes of addresses that it never touches.
CRAMPED_ADDRESS_SPACE = 64 << 30
WHY = {
    "address space": "allocations fail that never would have used memory (CUDA alone reserves tens of gigabytes)",
    "data": "allocations fail although memory is free",
    "file size": "a larger checkpoint or data set ends the process with SIGXFSZ",
    "stack": "deep recursion in native code is a stack overflow sooner than elsewhere",
}


def measure(patient: Patient) -> dict[str, int | None]:
    del patient
    found = {name: resource.getrlimit(number)[0] for name, (number, _) in NAMES.items()}
    return {name: None if soft == resource.RLIM_INFINITY else soft for name, soft in found.items()}


def judge(found: Mapping[str, int | None], job: Job) -> Iterator[Finding]:
    tight = {name: soft for name, soft in found.items() if soft is not None and _is_tight(name, soft)}
    if not tight:
        yield fine("address space, data, file size and stack are not limited below what is usual")
    for name, soft in tight.items():
        needs = (job.main_bytes or 0) if name in ("address space", "data") else 0
        flag = NAMES[name][1]
        yield Finding(
            severity="kills" if needs > soft else "risk",
            says=f"the {name} of a process is limited to {sizes.words(soft)}: {WHY[name]}",
            measured=(f"{sizes.words(soft)} (getrlimit; `ulimit -{flag}` shows it in KiB)",),
            fixes=(Fix("lift it before the job starts", f"ulimit -{flag} unlimited"),),
            facts={name: soft},
        )


def _is_tight(name: str, soft: int) -> bool:
    if name == "stack":
        return soft < USUAL_STACK
    return name != "address space" or soft < CRAMPED_ADDRESS_SPACE


CHECK = Check("resource-limits", "limits of a process", measure, judge)
