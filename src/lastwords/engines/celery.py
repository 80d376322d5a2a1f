"""Celery's prefork pool (billiard): `WorkerLostError`, in the log and in the result backend, says why, and of which task.

lastwords run -- celery -A app worker
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from lastwords import recording
from lastwords.engines import notes
from lastwords.engines.contract import Engine

ENGINE = Engine("Celery", tested=("5.7",))


def adapt(module: ModuleType) -> None:
    {"celery.app.trace": _adapt_tasks, "billiard.pool": _adapt_pool}[module.__name__](module)


def _adapt_tasks(module: Any) -> None:
    """In a worker: both ways in which a task is started there. (5.7)"""
    for name in ("trace_task_ret", "fast_trace_task"):
        setattr(module, name, _marking(getattr(module, name)))


def _marking(trace: Any) -> Any:
    keep = functools.cache(ENGINE.guarded(_keep))

    @functools.wraps(trace)
    def traced(name: Any, identity: Any, *args: Any, **kwargs: Any) -> Any:
        keep(os.getpid())
        recording.begin_item(f"task {name} {identity}")
        try:
            return trace(name, identity, *args, **kwargs)
        finally:
            recording.end_item()

    return traced


def _keep(_pid: int) -> None:
    """Its parent looks for dead workers once a second: `lastwords run` has put the box away by then."""
    recording.describe("Celery worker")
    recording.keep_own_box()


def _adapt_pool(module: Any) -> None:
    mark, explain = module.Pool.mark_as_worker_lost, ENGINE.guarded(_explained)

    @functools.wraps(mark)
    def mark_as_worker_lost(self: Any, job: Any, exitcode: int) -> Any:
        text = explain(job, exitcode)
        if text is None:
            return mark(self, job, exitcode)
        put = job._set

        def _set(index: Any, result: Any) -> Any:
            ENGINE.guarded(_add)(result, text)
            return put(index, result)

        job._set = _set
        try:
            return mark(self, job, exitcode)
        finally:
            del job._set

    module.Pool.mark_as_worker_lost = mark_as_worker_lost


def _explained(job: Any, exitcode: int) -> str | None:
    from lastwords.engines.children import account

    pids = list(job.worker_pids())
    return (account(pids[0], exitcode, "Celery worker") or None) if pids else None


def _add(result: Any, text: str) -> None:
    """Celery logs the error's repr, and stores its text: a note alone would be lost on both ways."""
    error = result[1].exception
    inner = getattr(error, "exc", error)
    notes.add(inner, text)
    inner.args = (f"{inner.args[0]}\n{text}", *inner.args[1:])
