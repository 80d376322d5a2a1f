"""A backend for joblib, and so for scikit-learn, on `lastwords.ProcessPoolExecutor`.

    import lastwords.joblib

    with joblib.parallel_config(backend="lastwords"):
        GridSearchCV(...).fit(X, y)

Importing this module registers it. A policy goes with it: `parallel_config(backend="lastwords", policy=Policy(...))`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy


class LastwordsBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """A batch of calls is one task: a death costs its own batch a second try, and nobody else anything."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, *, policy: Policy | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._policy = policy
        self._executor: ProcessPoolExecutor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """As joblib counts: None is one, -1 all CPUs, -2 all but one."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        cpus = len(os.sched_getaffinity(0))
        if n_jobs is None:
            return 1
        return max(1, cpus + 1 + n_jobs) if n_jobs < 0 else n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        count = self.effective_n_jobs(n_jobs)
        self._executor = ProcessPoolExecutor(count, policy=self._policy)
        self.parallel = parallel
        return count

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], object]) -> Future[Any]:
        assert self._executor is not None
        future = self._executor.submit(func)
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def terminate(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002  # joblib's own signature
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.kill()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


register_parallel_backend("lastwords", LastwordsBackend)
