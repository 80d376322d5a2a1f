"""Whether the job's first batches went well at all."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine, note
from lastwords.prevent.job import Job
from lastwords.prevent.measured import Trial
from lastwords.prevent.patient import Patient

STOOD_STILL = 30.0
"""Seconds. torch's loader waits for ever for a batch that its worker could not send, as for want of shared memory."""


def measure(patient: Patient) -> Trial | None:
    return patient.trial


def judge(found: Trial, job: Job) -> Iterator[Finding]:
    del job
    took = f"{found.items} items in {found.seconds:.1f} s"
    if found.is_failure or found.deaths:
        how = f"the job ended with {found.ended}" if found.is_failure else "a process of the job died"
        yield Finding(
            severity="kills",
            says=f"{how} in its first batches ({took})",
            measured=found.said[-4:],
            fixes=(Fix("have it explained", "lastwords run -- " + _shown(found.command)),),
            facts={"ended": found.ended, "deaths": found.deaths},
        )
    elif found.ended == "too slow" and found.stood_still > STOOD_STILL:
        yield Finding(
            severity="kills" if found.causes else "risk",
            says=f"the job did {found.items} items and then none for {found.stood_still:.0f} s",
            measured=found.said[-4:],
            fixes=(Fix("ask where it stands", "lastwords run --hang-after 60 -- " + _shown(found.command)),),
            facts={"ended": found.ended, "stood_still": found.stood_still},
        )
    elif found.main is None and found.ended == "exit code 0":
        yield note(f"the job was done after {found.seconds:.1f} s, before it could be looked at")
    elif found.main is None:
        yield note(
            f"no process of the job could be recorded in {found.seconds:.0f} s ({found.ended}): "
            "its Python must have lastwords installed"
        )
    elif not found.items:
        yield note(
            f"the job marked no items in {found.seconds:.0f} s ({found.ended}): its batches could not be counted"
        )
    else:
        yield fine(f"the job's first batches went well ({took})", f"it was {found.ended}")
    if found.left_running:
        yield note(f"the job left {found.left_running} processes running; they were ended with the trial")


def _shown(command: tuple[str, ...]) -> str:
    import shlex

    return shlex.join(command)


CHECK = Check("first-batches", "the job's first batches", measure, judge)
