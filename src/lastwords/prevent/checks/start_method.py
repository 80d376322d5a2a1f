"""How workers are started: fork, with threads or a GPU alive in the parent, may be a deadlock, or a dead CUDA.

Of all the parent's threads only one lives on in a forked child; a lock that another one held stays locked for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.measured import Fork
from lastwords.prevent.patient import Patient

SPAWN = 'DataLoader(…, multiprocessing_context="spawn")  # or "forkserver"'


@dataclass(frozen=True, slots=True)
class StartMethod:
    default: str | None
    fork: Fork | None
    """A fork that was seen."""
    was_tried: bool
    went_badly: bool = False
    """The job that was tried failed, or a process of it died."""


def measure(patient: Patient) -> StartMethod | None:
    if patient.trial is not None:
        went_badly = patient.trial.is_failure or patient.trial.deaths > 0
        return StartMethod(None, patient.trial.fork, was_tried=True, went_badly=went_badly)
    asked = patient.interpreter
    return StartMethod(asked.start_method, None, was_tried=False) if asked and asked.start_method else None


def judge(found: StartMethod, job: Job) -> Iterator[Finding]:
    del job
    if found.fork is None:
        yield fine(f"workers start by {found.default}" if not found.was_tried else "no worker was forked")
        return
    if found.fork.cuda:
        # Most training loops do it, and all is well as long as the dataset leaves the GPU alone.
        yield Finding(
            severity="risk" if found.went_badly else "note",
            says="workers are forked while the parent uses a GPU: in them CUDA cannot be used",
            measured=("the parent had /dev/nvidia* open when it forked (/proc/PID/fd)",),
            fixes=(
                Fix("return tensors of the CPU from the dataset, and move them in the loop"),
                Fix("or start workers afresh", SPAWN),
            ),
        )
    if found.fork.parent_threads:
        names = ", ".join(found.fork.names)
        yield Finding(
            severity="risk",
            says=f"workers are forked while the parent has {found.fork.parent_threads} more threads: one that holds a lock then leaves it locked in the worker for ever",
            measured=(f"threads older than the first worker: {names} (/proc/PID/task)",),
            fixes=(Fix("start workers afresh", SPAWN), Fix("or start those threads after the loader")),
            facts={"threads": found.fork.parent_threads, "names": found.fork.names},
        )
    if not found.fork.cuda and not found.fork.parent_threads:
        yield fine("workers are forked from a parent with one thread", "threads and open devices (/proc)")


CHECK = Check("start-method", "how workers are started", measure, judge)
