"""Thread pools of OpenMP and BLAS: a runtime that comes twice, and more threads than CPUs.

Two OpenMP runtimes in one process abort ("OMP: Error #15"), deadlock after fork, or only fight for the CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import room
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.runtimes import by_kind, runtimes_among

CROWDED = 2.0
"""Times as many busy threads as CPUs."""


@dataclass(frozen=True, slots=True)
class Pools:
    libraries: tuple[str, ...]
    threads: int | None
    """That the largest pool of one process has; None: nobody asked."""
    cpus: float
    cpus_from: str
    seen_cpus: int
    """What libraries take for the number of CPUs."""
    in_worker: int | None
    """Threads of a real worker."""


def measure(patient: Patient) -> Pools:
    cpus, where = room.cpus()
    seen = os.cpu_count() or 1
    if patient.trial is not None:
        workers = max((one.threads for one in patient.trial.workers), default=0)
        return Pools(patient.trial.runtimes, None, cpus, where, seen, workers or None)
    asked = patient.interpreter
    if asked is None:
        return Pools((), None, cpus, where, seen, None)
    threads = max((pool.num_threads or 0 for pool in asked.runtimes), default=0) or None
    loader = asked.torch.loader if asked.torch else None
    return Pools(
        runtimes_among(asked.libraries), threads, cpus, where, seen, loader.worker_threads if loader else None
    )


def judge(found: Pools, job: Job) -> Iterator[Finding]:
    bad = [*_doubles(found), *_crowd(found, job)]
    yield from bad
    if not bad:
        names = ", ".join(os.path.basename(path) for path in found.libraries)
        yield fine(
            "no thread pool comes twice, none is too large", names or "no OpenMP or BLAS library is loaded"
        )


def _doubles(found: Pools) -> Iterator[Finding]:
    kinds = by_kind(found.libraries)
    openmp = {kind: paths for kind, paths in kinds.items() if kind.startswith("OpenMP")}
    if len(openmp) > 1:
        yield Finding(
            severity="risk",
            says=f"{len(openmp)} different OpenMP runtimes in one process: it may abort, or hang after fork",
            measured=tuple(f"{kind}: {path}" for kind, paths in openmp.items() for path in paths),
            fixes=(Fix("install all packages from one source (all from pip, or all from conda)"),),
            facts={"kinds": tuple(openmp)},
        )
    for kind, paths in kinds.items():
        if len(paths) > 1:
            yield Finding(
                severity="note",
                says=f"{kind} is loaded {len(paths)} times: each copy has a pool of threads of its own",
                measured=tuple(paths),
                fixes=(Fix("keep each small", "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"),),
                facts={"kind": kind, "copies": len(paths)},
            )


def _crowd(found: Pools, job: Job) -> Iterator[Finding]:
    """A quota is what libraries do not see: they start a thread for each CPU of the machine."""
    if found.threads is not None and found.threads > found.cpus * CROWDED:
        count = max(1, int(found.cpus))
        yield Finding(
            severity="slow",
            says=f"thread pools start {found.threads} threads, and this process may use {found.cpus:g} CPUs",
            measured=(
                f"{found.cpus:g}: {found.cpus_from}",
                f"libraries see {found.seen_cpus} CPUs (threadpoolctl)",
            ),
            fixes=(
                Fix(
                    "tell them",
                    f"export OMP_NUM_THREADS={count} OPENBLAS_NUM_THREADS={count} MKL_NUM_THREADS={count}",
                ),
            ),
            facts={"threads": found.threads, "cpus": found.cpus},
        )
    if job.source != "supposed" and job.workers > found.cpus * CROWDED:
        yield Finding(
            severity="slow",
            says=f"{job.workers} workers share {found.cpus:g} CPUs",
            measured=(f"{found.cpus:g}: {found.cpus_from}",),
            fixes=(Fix("see what `lastwords doctor -- CMD` recommends for num_workers"),),
            facts={"workers": job.workers, "cpus": found.cpus},
        )


CHECK = Check("thread-pools", "OpenMP and BLAS thread pools", measure, judge)
