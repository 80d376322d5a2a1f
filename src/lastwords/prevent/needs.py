"""The job that the checks judge for: as it was measured, as the user says it is, or as most are."""

from __future__ import annotations

import math

from lastwords.prevent import room, sizes
from lastwords.prevent.interpreter import Interpreter
from lastwords.prevent.job import PREFETCH, USUAL_BATCH_BYTES, USUAL_TENSORS, Job
from lastwords.prevent.measured import Trial


def supposed(asked: Interpreter | None, workers: int | None = None, batch_bytes: int | None = None) -> Job:
    """What the user has told, and for the rest a usual job. Sizes of processes are measured where torch was asked."""
    number = workers if workers is not None else max(2, math.ceil(room.cpus()[0]))
    size = batch_bytes if batch_bytes is not None else USUAL_BATCH_BYTES
    is_given = workers is not None or batch_bytes is not None
    loader = asked.torch.loader if asked and asked.torch else None
    what = (
        f"batches of {sizes.words(size)}"
        if batch_bytes is not None
        else f"batches of 64 pictures, {sizes.words(size)}"
    )
    return Job(
        source="given" if is_given else "supposed",
        words=f"{number} workers, each {PREFETCH} {what} ahead",
        workers=number,
        batch_bytes=size,
        batch_tensors=USUAL_TENSORS,
        main_bytes=asked.loaded_bytes if asked and asked.imports else None,
        worker_bytes=loader.worker_bytes if loader else None,
        main_descriptors=loader.descriptors if loader else None,
        descriptors_per_worker=loader.descriptors_per_worker if loader else None,
    )


def of_trial(trial: Trial) -> Job:
    main, workers = trial.main, trial.workers
    settings = trial.loader
    number = settings.num_workers if settings and settings.num_workers else len(workers)
    prefetch = (settings.prefetch_factor if settings else None) or (PREFETCH if number else 0)
    return Job(
        source="measured",
        words=f"{trial.items} items of it, in {trial.seconds:.0f} s",
        workers=number,
        prefetch=prefetch,
        batch_bytes=trial.batch_bytes or 0,
        batch_tensors=round(trial.batch_tensors or 0),
        main_bytes=main.peak_bytes if main else None,
        worker_bytes=max((one.private_bytes for one in workers), default=0) if number else 0,
        main_descriptors=main.descriptors if main else None,
        descriptors_per_worker=0.0,
        threads=trial.threads,
        memory_kills=trial.memory_kills,
        held_batches=max(1, math.ceil(trial.held_batches or 1)),
    )
