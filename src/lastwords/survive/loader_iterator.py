"""One epoch, from the trainer's side: torch's own order of things, over workers that may die.

Which batch goes to which worker, and when it is drawn from the sampler, decides what the trainer sees; so that part is
torch's own code (`_MultiProcessingDataLoaderIter`), run over queues that are ours.
"""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import queue
import select
import signal
import threading
import weakref
from dataclasses import replace
from multiprocessing import util
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe, _utils
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _sharding_worker_init_fn,
)

from lastwords import recording
from lastwords.survive import descriptors, loader_random, loader_state
from lastwords.survive.guest import Guest
from lastwords.survive.loader_batch import Batch, Delivery, Feed, Resume
from lastwords.survive.loader_report import Record
from lastwords.survive.loader_shelf import new_shelf
from lastwords.survive.loader_sieve import Skipped
from lastwords.survive.loader_worker import Past, Plan
from lastwords.survive.pinned import pinning_for
from lastwords.survive.policy import Policy
from lastwords.survive.supervisor import Supervisor
from lastwords.survive.tasks import Task

POLITE = 5.0
"""Seconds that workers have to end by themselves, as torch gives them."""

_alive: weakref.WeakSet[SurvivingIterator] = weakref.WeakSet()


def _end_all() -> None:
    for iterator in list(_alive):
        iterator._end()


def _end_all_with_process() -> None:
    """A process of multiprocessing's own (a rank, say) waits for its children before it ends its threads."""
    if _ends_with.get("pid") != os.getpid():
        _ends_with["pid"] = os.getpid()
        util.Finalize(None, _end_all, exitpriority=100)


_ends_with: dict[str, int] = {}

# Before Python waits for its threads, of which each supervisor is one; atexit would be too late.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]
# A forked child has copies of iterators that have no thread there, and nothing to end.
os.register_at_fork(after_in_child=_alive.clear)


class _Orders:
    """What torch's code takes for a worker's queue of indices."""

    def __init__(self, feed: Feed, supervisor: Supervisor, guest: Guest, seat: int) -> None:
        self._feed = feed
        self._supervisor = supervisor
        self._guest = guest
        self._seat = seat

    def put(self, order: Any) -> None:
        if order is None:
            return
        task: Task = (
            self._batch(*order) if isinstance(order, tuple) else Resume(self._feed, order, self._seat)
        )
        if self._supervisor.broken is not None:
            task.failed(self._supervisor.broken)
        elif isinstance(task, Batch) and task.is_lost:
            task.failed(RuntimeError("nothing is left of the batch"))
        else:
            self._guest.submit(task)

    def _batch(self, number: int, index: Any) -> Batch:
        if self._feed.poison:
            index = self._feed.without_poison(index)
        batch = Batch(self._feed, number, index, self._seat)
        batch.is_lost = index is None and bool(self._feed.poison) and not self._feed.plan.is_iterable
        return batch


class _Results:
    """And for the queue of all workers' results."""

    def __init__(self, feed: Feed) -> None:
        self._results = feed.results

    def get(self, timeout: float | None = None) -> tuple[Any, Any]:
        return _delivered(self._results.get(timeout=timeout))

    def put(self, value: Any) -> None:
        self._results.put(value)

    def cancel_join_thread(self) -> None:
        pass

    def close(self) -> None:
        pass


def _delivered(found: Any) -> tuple[Any, Any]:
    return found if type(found) is tuple else found.delivered()


class _Worker:
    """What others look for in torch's list of workers: the first process in its seat. A replacement is not listed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = descriptors.hold_end_of(pid)
        weakref.finalize(self, _close, self._pidfd, os.getpid()).atexit = False

    def is_alive(self) -> bool:
        return not self._has_ended(0)

    def join(self, timeout: float | None = None) -> None:
        self._has_ended(timeout)

    @property
    def exitcode(self) -> int | None:
        """None: it runs, or the kernel does not tell (before Linux 6.15) what our supervisor has asked for already."""
        with contextlib.suppress(OSError, NotImplementedError):
            status = recording.exit_status(self._pidfd)
            return None if status is None else os.waitstatus_to_exitcode(status)
        return None

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            signal.pidfd_send_signal(self._pidfd, number)

    def _has_ended(self, timeout: float | None) -> bool:
        end = select.poll()
        end.register(self._pidfd, select.POLLIN)
        return bool(end.poll(None if timeout is None else 1000 * timeout))


def _close(pidfd: int, owner: int) -> None:
    if owner == os.getpid():  # in a fork the number stands for another file by now
        descriptors.close(pidfd)


class SurvivingIterator(_MultiProcessingDataLoaderIter):  # type: ignore[misc]  # torch is not looked into
    _pin_memory: bool
    """By torch's thread."""

    _sampler_iter: Any

    def __init__(
        self, loader: Any, policy: Policy, record: Record, state: dict[str, Any] | None = None
    ) -> None:
        self._shutdown = True  # until there is something to shut down
        self._start = state or loader_state.epoch_start(loader)
        _BaseDataLoaderIter.__init__(self, loader)  # and not its child's, which starts processes
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        assert self._num_workers > 0
        assert self._prefetch_factor > 0
        self._record = record
        self._to_go_on_from = state
        self._is_finished = False
        self._pasts: list[Past | None] = []  # until the epoch has begun
        self.left_at: list[dict[str, Any]] = []
        """Where it was when it was left in the middle of the epoch, for the loader, which outlives it."""
        if state is not None:
            self._base_seed = state["base_seed"]
            if state["is_seeded"]:
                loader_state.put_back(
                    loader, state
                )  # torch's code has just drawn a seed that nobody drew then
        pasts = list(state["workers"]) if state else [None] * self._num_workers
        self._pinning = pinning_for(self._prefetch_factor, record.report) if self._pin_memory else None
        self._feed = Feed(self._plan(loader, policy), policy, record, pasts)
        self._fork_gate = threading.Lock()
        context = loader.multiprocessing_context or multiprocessing.get_context(
            torch.multiprocessing.get_start_method()
        )
        if context.get_start_method() == "fork":
            loader_random.load_before_fork()
        self._supervisor = Supervisor(
            self._num_workers,
            context,
            setup=self._feed.setup,
            policy=replace(policy, on_poison="raise"),
            role="DataLoader worker",
            is_prompt=True,
            fork_gate=self._fork_gate,
            lending=None if self._pinning is None else self._pinning.lending,
            on_death=record.died,
            on_passed=record.passed,
        )
        self._shutdown = False
        _alive.add(self)
        _end_all_with_process()
        self._guest = Guest(self._supervisor)
        self._start_workers()
        self._index_queues = [
            _Orders(self._feed, self._supervisor, self._guest, seat) for seat in range(self._num_workers)
        ]
        self._worker_result_queue = _Results(self._feed)
        self._data_queue: Any = self._worker_result_queue
        if self._pinning is not None and self._pinning.begin():
            self._pin_memory = False  # torch's thread need not
        if self._pin_memory:
            self._start_pinning()
        self._reset(loader, first_iter=True)

    def _plan(self, loader: Any, policy: Policy) -> Plan:
        init_fn = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            init_fn = functools.partial(_sharding_worker_init_fn, init_fn, self._world_size, self._rank)
        self._worker_init_fn = init_fn
        return Plan(
            self._dataset_kind,
            self._dataset,
            self._auto_collation,
            self._collate_fn,
            self._drop_last,
            self._base_seed,
            init_fn,
            self._num_workers,
            self._shared_seed,
            # A GPU's driver knows the workers' own memories, and no other.
            new_shelf(self._num_workers * self._prefetch_factor) if self._pinning is None else None,
            # A function is asked by the trainer, which may have to end a worker first: about deaths only.
            "raise" if callable(policy.on_poison) else policy.on_poison,
            1 + policy.retries,
        )

    def _start_workers(self) -> None:
        """And waits until they are: like torch's, they have the dataset as it is now."""
        is_started = threading.Event()
        self._supervisor.start_all()
        self._supervisor.note(is_started.set)
        while not is_started.wait(timeout=1):
            if not self._supervisor.is_alive():
                raise RuntimeError("the thread that starts the DataLoader's workers has ended")
        if self._supervisor.broken is not None:
            self._end()
            raise self._supervisor.broken
        self._workers = [_Worker(pid) for pid in self._supervisor.pids()]

    def _start_pinning(self) -> None:
        self._pin_memory_thread_done_event = threading.Event()
        self._data_queue = queue.Queue()
        self._pin_memory_thread = threading.Thread(
            target=_utils.pin_memory._pin_memory_loop,
            args=(
                self._worker_result_queue,
                self._data_queue,
                torch.accelerator.current_device_index(),
                self._pin_memory_thread_done_event,
                self._pin_memory_device,
            ),
            daemon=True,
        )
        self._pin_memory_thread.start()

    # Batches. A worker is replaced while the trainer waits here and at no other time: it holds no lock then, half-way
    # through something, that the fork would copy.

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002  # torch's own
        self._let_fork()
        try:
            if not first_iter:
                self._start = loader_state.epoch_start(loader, is_seeded=True)
            self._places = loader_state.Places()
            self._pasts = []
            self._is_finished = False
            super()._reset(loader, first_iter)
            if (kind := getattr(loader, "progress", None)) is not None:
                self._record.show(kind, loader_state.batches_of(loader), self._num_yielded)
        finally:
            self._guest.go()
            self._fork_gate.acquire()

    def __next__(self) -> Any:
        """As torch has it, less a note for its profiler while none runs: that takes as long as many a batch."""
        if torch.autograd._profiler_enabled() or self._feed.plan.is_iterable:
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        since = self._record.wanted()
        if self._pinning is not None and not self._pinning.turn() and not self._pin_memory:
            self._pin_memory = True
            self._start_pinning()
        if not self._pin_memory:
            self._guest.come()
        if self._feed.is_large:
            # The batch before the last is gone: its worker builds the next one there, and not in fresh pages.
            self._guest.return_blocks()
        self._let_fork()
        try:
            data = super()._next_data()
            while isinstance(data, Skipped):
                data = super()._next_data()
        except StopIteration:
            self._record.pause()
            self._is_finished = True
            self.left_at.clear()  # torch's code has ended the workers before it says so
            raise
        finally:
            self._guest.go()
            self._fork_gate.acquire()
        self._record.got(since)
        return data if self._pinning is None else self._pinning.pinned(data)

    def _let_fork(self) -> None:
        try:
            self._fork_gate.release()
        except RuntimeError:  # not held: nobody has waited yet
            pass

    def _try_get_data(self, timeout: float = _utils.MP_STATUS_CHECK_INTERVAL) -> tuple[bool, Any]:
        try:
            if self._pin_memory:
                return True, self._data_queue.get(timeout=timeout)
            return True, _delivered(self._guest.get(self._feed.results, timeout))
        except queue.Empty:
            return False, None

    def _process_data(self, data: Any, worker_idx: int) -> Any:
        assert isinstance(data, Delivery)
        if data.past is not None:
            self._pasts[worker_idx] = data.past
        return super()._process_data(data.data, worker_idx)

    def _mark_worker_as_unavailable(self, worker_id: int, shutdown: bool = False) -> None:  # noqa: FBT001, FBT002  # torch's own
        self._workers_status[worker_id] = False
        if shutdown or not self._persistent_workers:
            self._supervisor.retire(worker_id)

    # Where it is

    def state(self) -> dict[str, Any]:
        drawn, pending = (self._rcvd_idx, ()) if self._in_order else (self._send_idx, self._task_info)
        waiting = self._task_info.get(self._rcvd_idx)
        return self._start | {
            "base_seed": self._base_seed,
            "yielded": self._num_yielded,
            **self._places.after(drawn, pending),
            "is_finished": self._is_finished,
            "next_worker": waiting[0] if waiting is not None else 0,
            "is_working": list(self._workers_status),
            "workers": list(self._pasts),
        }

    def _next_index(self) -> Any:
        # Before the first batch is asked for: one that has arrived is ahead of the trainer.
        if not self._pasts:
            self._pasts = list(self._feed.pasts)
        if self._to_go_on_from is not None:
            state, self._to_go_on_from = self._to_go_on_from, None
            self._go_on_from(state)
        return super()._next_index()

    def _go_on_from(self, state: dict[str, Any]) -> None:
        """When torch's code is about to draw the first batch of the epoch, and has set all its counts to 0."""
        self._num_yielded = state["yielded"]
        self._places = loader_state.Places(state)
        self._workers_status = list(state["is_working"])
        loader_state.wind(self._worker_queue_idx_cycle, state["next_worker"])
        if not self._feed.plan.is_iterable:
            self._sampler_iter = self._places.wound(self._sampler_iter)

    # The end

    def _shutdown_workers(self) -> None:
        if _utils is None or _utils.python_exit_status is not False:
            return
        self._end()

    def _end(self) -> None:
        if self._shutdown:
            return
        self._shutdown = True
        if self._pasts and not self._is_finished:
            self.left_at.append(self.state())
        self._record.pause()
        _alive.discard(self)
        self._guest.leave()
        self._let_fork()
        if hasattr(self, "_pin_memory_thread"):
            self._pin_memory_thread_done_event.set()
            self._worker_result_queue.put((None, None))
            self._pin_memory_thread.join()
        self._supervisor.stop(wait=False, cancel=_drop)
        self._supervisor.join(POLITE)
        if self._supervisor.is_alive():
            self._supervisor.kill()
            self._supervisor.join()
        if self._pinning is not None:
            self._pinning.close()
        if self._feed.plan.shelf is not None:
            self._feed.plan.shelf.close()

    def __del__(self) -> None:
        self._shutdown_workers()


def _drop(_task: Task) -> None:
    """Nobody waits for it any more."""
