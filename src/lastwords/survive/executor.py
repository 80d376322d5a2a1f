"""`lastwords.ProcessPoolExecutor`: the one of concurrent.futures, except that a death costs one task and not the pool."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any, TypeVar

from lastwords.survive import chunks, stretches
from lastwords.survive.future import LightFuture
from lastwords.survive.policy import Policy, WorkerDied
from lastwords.survive.progress import Kind
from lastwords.survive.supervisor import Supervisor
from lastwords.survive.tasks import NO_ARGUMENTS, Task

T = TypeVar("T")

_alive: weakref.WeakSet[Supervisor] = weakref.WeakSet()
_elsewhere: WorkerDied | None = None
"""What is raised to whoever uses one of them in a fork. Made beforehand: a fork has its own copy of each page it touches."""
_end: RuntimeError | None = None
"""What is raised to whoever submits when the interpreter has ended so far that it has no threads any more."""


def _stop_all() -> None:
    """The interpreter ends: what was submitted is finished first, as concurrent.futures has it."""
    global _end  # noqa: PLW0603  # one interpreter
    supervisors = list(_alive)
    for supervisor in supervisors:
        supervisor.stop(wait=False)
    for supervisor in supervisors:
        supervisor.join()
    _end = RuntimeError("cannot schedule new futures after interpreter shutdown")
    for supervisor in supervisors:
        supervisor.broken = supervisor.broken or _end


# Before Python waits for its threads, of which each supervisor is one; atexit would be too late.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]  # noqa: SLF001


def _disown() -> None:
    """A forked child has copies of supervisors that have no thread there, and nothing to stop."""
    for supervisor in _alive:
        supervisor.broken = _elsewhere
    _alive.clear()


os.register_at_fork(after_in_child=_disown)


def _note_alive(supervisor: Supervisor) -> None:
    global _elsewhere  # noqa: PLW0603  # one process
    _elsewhere = WorkerDied(
        f"this pool belongs to process {os.getpid()}, and a fork of it cannot use it: make another one here"
    )
    _alive.add(supervisor)


class _Call(Task):
    """A submitted call: what becomes of it becomes of its future."""

    __slots__ = ("future", "has_begun")

    def __init__(
        self, future: Future[Any], work: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, label: int
    ) -> None:
        # Not by way of Task's own: a call more is a tenth of what a submit costs.
        self.work = work
        self.args = args
        self.kwargs = kwargs
        self.label = label
        self.seat = None
        self.attempts = 0
        self.future = future
        self.has_begun = False

    def begins(self) -> bool:
        if not self.has_begun:
            self.has_begun = self.future.set_running_or_notify_cancel()
        return self.has_begun

    def succeeded(self, value: Any) -> None:
        self.future.set_result(value)

    def failed(self, error: BaseException) -> None:
        if self.begins():
            self.future.set_exception(error)

    def cancelled(self) -> None:
        self.future.cancel()
        self.future.set_running_or_notify_cancel()


class ProcessPoolExecutor(Executor):
    """All of `concurrent.futures.ProcessPoolExecutor`, and `policy`: what to do when a task kills its worker.
    `progress`: "rich", "tqdm", or a function that is given the counts.

    A death costs at most the task that caused it: that is tried again alone in a fresh worker and, if it kills again,
    raises `WorkerDied` from its future. All other tasks go on, and what was finished is delivered.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: BaseContext | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        policy: Policy | None = None,
        progress: Kind | None = None,
    ) -> None:
        if max_workers is None:
            max_workers = len(os.sched_getaffinity(0))
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None and not isinstance(max_tasks_per_child, int):
            raise TypeError("max_tasks_per_child must be an integer")
        if max_tasks_per_child is not None and max_tasks_per_child <= 0:
            raise ValueError("max_tasks_per_child must be >= 1")
        self._max_workers = max_workers
        self._context = mp_context or multiprocessing.get_context()
        self._setup = (initializer, initargs) if initializer is not None else None
        self._tasks_per_worker = max_tasks_per_child
        self._policy = policy or Policy()
        self._progress = progress
        self._supervisor: Supervisor | None = None
        self._is_shut_down = False
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        """For starting and stopping alone; a submit does not take it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        supervisor = self._supervisor
        # Asked here and not by `_ready`, for the price of a call.
        if supervisor is None or self._is_shut_down or supervisor.broken is not None:
            supervisor = self._ready()
        future: LightFuture[T] = LightFuture()
        supervisor.submit(_Call(future, fn, args, kwargs or NO_ARGUMENTS, next(self._numbers)))
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """As Executor.map. Small tasks are batched by themselves: `chunksize` saves more where they are tiny.

        If an item of a chunk kills its worker, that item alone is tried again and, in the end, raises.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if not iterables or (chunksize == 1 and not self._may_travel_together):
            return super().map(fn, *iterables, timeout=timeout)
        end = timeout + monotonic() if timeout is not None else None
        supervisor = self._ready()
        if chunksize == 1:
            sections = []
            for section in stretches.sections(fn, iterables):
                for task in section.pieces(0, len(section.items)):
                    supervisor.submit(task)
                sections.append(section)
            return stretches.results(sections, end)
        made = []
        for chunk, task in chunks.chunks(fn, iterables, chunksize):
            supervisor.submit(task)
            made.append(chunk)
        return chunks.results(made, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        with self._lock:
            self._is_shut_down = True
            supervisor = self._supervisor
        if supervisor is not None and supervisor.is_alive():
            supervisor.stop(wait=wait, cancel=_cancel if cancel_futures else None)

    def kill(self) -> None:
        """Ends the workers at once: what they run, and what waits, fails."""
        with self._lock:
            self._is_shut_down = True
            supervisor = self._supervisor
        if supervisor is not None and supervisor.is_alive():
            supervisor.kill()
            supervisor.join()

    def stats(self) -> dict[str, int]:
        """Counts since the beginning.

        `done`: tasks with a result or an exception, a chunk of a map being one; `deaths` of workers; tasks `retried`
        and `poisoned`; workers `replaced` after a death and `recycled` between two tasks; `passed_alone`: tasks that had
        killed a worker and then passed, alone in a fresh one.
        """
        one = self._supervisor
        counts = ("done", "deaths", "retried", "poisoned", "replaced", "recycled")
        found = {name: getattr(one, name) if one is not None else 0 for name in counts}
        return found | {"passed_alone": one.trials.passed if one is not None else 0}

    @property
    def _may_travel_together(self) -> bool:
        """Nobody looks at each task before it runs, or at its worker after it."""
        policy = self._policy
        looks = (
            policy.timeout,
            policy.memory_limit,
            policy.recycle,
            policy.quarantine,
            self._tasks_per_worker,
        )
        return all(one is None for one in looks)

    def _ready(self) -> Supervisor:
        if _end is not None:
            raise _end
        supervisor = self._supervisor or self._started()
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if supervisor.broken is not None:
            raise _broken(supervisor.broken)
        return supervisor

    def _started(self) -> Supervisor:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._supervisor is None:
                self._supervisor = Supervisor(
                    self._max_workers,
                    self._context,
                    setup=self._setup,
                    policy=self._policy,
                    tasks_per_worker=self._tasks_per_worker,
                    progress=self._progress,
                )
                _note_alive(self._supervisor)
                # An executor that nobody holds any more ends its workers when they are done.
                weakref.finalize(self, self._supervisor.stop, wait=False).atexit = False
            return self._supervisor


def _cancel(task: Task) -> None:
    task.cancelled()


def _broken(reason: BaseException) -> BaseException:
    if isinstance(reason, BrokenProcessPool):
        return reason
    error = BrokenProcessPool(f"the pool is broken: {type(reason).__name__}: {reason}")
    error.__cause__ = reason
    return error
