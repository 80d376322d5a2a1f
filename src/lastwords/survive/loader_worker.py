"""What runs in a DataLoader's worker: torch's own work, batch for batch and seed for seed, with every step named."""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import IterDataPipe, _DatasetKind
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.graph_settings import apply_random_seed

from lastwords import recording
from lastwords.survive import loader_random, worker
from lastwords.survive.loader_collate import collate_into_shared_memory
from lastwords.survive.loader_gather import Gatherer, Unusual
from lastwords.survive.loader_random import Changes, Snapshot
from lastwords.survive.loader_shelf import Shelf
from lastwords.survive.loader_sieve import LEFT_OUT, Raised, Sieve, Skipped
from lastwords.survive.loader_transport import Tree, pack

WHOLE_BATCH = -1
"""Position of a worker that works on all items at once: it collates, or the dataset fetches batches."""
FIRST_PROBE = -2
"""And of one that tries out suspects: the first group, the second at -3, and so on."""

Timing = tuple[int, int, int]
"""Nanoseconds of the batch; of its slowest item; that item's position (-1: not known)."""
UNKNOWN = (0, -1)
Fetched = tuple[Tree | bytes, list[Any], Changes | None, Any, Timing, list[Raised]]
"""A batch as it travels: structure, buffers, how the random numbers changed, the stream's state, times, bad items."""


@dataclass(frozen=True)
class Plan:
    """The same for all workers of a loader."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], object] | None
    workers: int
    shared_seed: int | None
    shelf: Shelf | None
    on_raise: str = "raise"
    """Or "skip" or "substitute": what becomes of an item that raises."""
    tries: int = 1
    """Of each item of a batch that has raised."""

    @cached_property
    def is_iterable(self) -> bool:
        return bool(self.kind == _DatasetKind.Iterable)


@dataclass(frozen=True)
class Past:
    """What a worker is told of those before it in its seat. The first one has none."""

    random: Snapshot
    """After the last batch that was finished."""
    random_at_start: Snapshot | None = None
    """When the stream of an iterable dataset was begun; None: after the set-up, in the first epoch."""
    passed: int = 0
    """Batches that were taken from it."""
    index: Any = None
    """How many samples such a batch has, as torch says it."""
    state: Any = None
    """Of the stream after them, if it has one."""


_loading: Loading | None = None


def prepare(plan: Plan, seat: int, past: Past | None) -> None:
    """The worker's set-up."""
    global _loading  # noqa: PLW0603  # one worker is one process
    _loading = Loading(plan, seat)
    _loading.begin(past)


def fetch(index: Any, probes: list[Any]) -> Fetched:
    """One batch. `probes`: groups of suspects, to be tried out first."""
    assert _loading is not None
    return _loading.fetch(index, probes)


def resume(shared_seed: int | None) -> tuple[Changes | None, Snapshot]:
    """A new epoch. How the random numbers changed since the last batch, and as they were before."""
    assert _loading is not None
    return _loading.resume(shared_seed)


# They name their items themselves, and better than by a call's arguments.
fetch.marks_its_items = resume.marks_its_items = True  # type: ignore[attr-defined]


class Loading:
    def __init__(self, plan: Plan, seat: int) -> None:
        self._plan = plan
        self._seat = seat
        self._dataset = plan.dataset
        self._stream = _Stream(plan.dataset)
        self._fetcher: Any = None
        self._init_exception: ExceptionWrapper | None = None
        self._has_ended = self._is_told = False
        self._gatherer: Gatherer | None = None
        """Where nobody sees a batch before it is sent."""
        self._slowest: tuple[int, int] = UNKNOWN
        self._sieve: Sieve | None = None
        """Where items may raise."""
        self._watch: loader_random.Watch

    # Beginning: see torch.utils.data._utils.worker._worker_loop, step by step

    def begin(self, past: Past | None) -> None:
        # What the fork shares with the trainer is no garbage of ours: to look for some there would copy its pages.
        gc.freeze()
        collate_into_shared_memory()
        if self._plan.shelf is not None:
            self._plan.shelf.sit_down(self._seat)
        torch.multiprocessing._set_thread_name("pt_data_worker")
        torch.set_num_threads(1)
        seed = self._seed()
        self._apply_shared_seed(self._plan.shared_seed)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=self._seat, num_workers=self._plan.workers, seed=seed, dataset=self._dataset
        )
        try:
            if self._plan.init_fn is not None:
                self._plan.init_fn(self._seat)
            self._go_on(past) if past is not None else self._make_fetcher()
        except Exception:  # noqa: BLE001  # as torch: it is the first batch's
            self._init_exception = ExceptionWrapper(where=self._where)
        self._watch = loader_random.Watch()

    def _seed(self) -> int:
        seed = self._plan.base_seed + self._seat
        random.seed(seed)
        torch.manual_seed(seed)
        with suppress(ImportError):
            import numpy as np

            np.random.seed(torch_worker._generate_state(self._plan.base_seed, self._seat))
        return seed

    def _apply_shared_seed(self, shared_seed: int | None) -> None:
        if isinstance(self._dataset, IterDataPipe):
            assert shared_seed is not None
            generator = torch.Generator()
            generator.manual_seed(shared_seed)
            self._dataset = apply_random_seed(self._dataset, generator)

    def _make_fetcher(self) -> None:
        self._stream = _Stream(self._dataset)
        self._fetcher = _DatasetKind.create_fetcher(
            self._plan.kind,
            self._stream if self._plan.is_iterable else self._dataset,
            self._plan.auto_collation,
            self._collated,
            self._plan.drop_last,
        )
        if self._plan.on_raise != "raise" and not self._plan.is_iterable:
            self._sieve = Sieve(self._dataset, self._plan.on_raise == "substitute", self._plan.tries)
        gatherer = Gatherer(self._plan.shelf)
        self._gatherer = gatherer if gatherer.is_for(self._plan.collate_fn) else None

    @property
    def _where(self) -> str:
        return f"in DataLoader worker process {self._seat}"

    # In the place of a worker that died

    def _go_on(self, past: Past) -> None:
        if not self._plan.is_iterable:
            self._make_fetcher()
        elif past.state is not None:
            self._stream.load_before(past.state)
            self._make_fetcher()
            self._stream.load_after(past.state)
        else:
            if past.random_at_start is not None:
                loader_random.restore(past.random_at_start)
            self._make_fetcher()
            self._wind_forward(past)
        loader_random.restore(past.random)

    def _wind_forward(self, past: Past) -> None:
        """Takes the same samples again, and throws them away."""
        collate, self._fetcher.collate_fn = self._fetcher.collate_fn, _drop
        for _ in range(past.passed):
            with suppress(
                Exception
            ):  # a sample that raises was delivered as an exception, and the stream went on
                self._fetcher.fetch(past.index)
        self._fetcher.collate_fn = collate
        if loader_random.Watch().snapshot != past.random and past.passed:
            sys.stderr.write(
                f"lastwords: worker {self._seat} of the DataLoader was replaced, and its iterable dataset did not draw "
                "the same random numbers again: samples may be missing or come twice.\n"
                "  Give the dataset state_dict() and load_state_dict(), and it goes on exactly where it was.\n"
            )

    # Batches

    def resume(self, shared_seed: int | None) -> tuple[Changes | None, Snapshot]:
        before = self._watch.snapshot
        self._has_ended = False
        self._plan = replace(self._plan, shared_seed=shared_seed)
        self._apply_shared_seed(shared_seed)
        self._make_fetcher()
        return self._watch.changes(), before

    def fetch(self, index: Any, probes: list[Any]) -> Fetched:
        assert worker.current is not None
        for number, suspects in enumerate(probes):
            worker.current.at_item(FIRST_PROBE - number)
            self._try_out(suspects)
        worker.current.at_item(WHOLE_BATCH)
        began = time.monotonic_ns()
        self._slowest = UNKNOWN
        data, buffers = pack(self._value(index))
        if self._plan.shelf is not None:
            self._plan.shelf.keep(buffers)
        timing = (time.monotonic_ns() - began, *self._slowest)
        raised = self._sieve.take() if self._sieve is not None else []
        return data, buffers, self._changes(), self._stream.state(), timing, raised

    def _changes(self) -> Changes | None:
        """The first time, all of it: nobody has been told yet."""
        changes = self._watch.changes()
        if self._is_told:
            return changes
        self._is_told = True
        return self._watch.snapshot

    def _try_out(self, suspects: Any) -> None:
        before = loader_random.Watch().snapshot
        with suppress(Exception):
            pack(self._fetcher.fetch(suspects))
        loader_random.restore(before)

    def _value(self, index: Any) -> Any:
        if self._init_exception is not None:
            value, self._init_exception = self._init_exception, None
            return value
        if self._has_ended:
            return torch_worker._IterableDatasetStopIteration(self._seat)
        try:
            return self._fetched(index) if self._sieve is None else self._fetched_good(index, self._sieve)
        except Exception as error:  # noqa: BLE001  # whatever the user's code raises is the trainer's
            if isinstance(error, StopIteration) and self._plan.is_iterable:
                self._has_ended = True
                return torch_worker._IterableDatasetStopIteration(self._seat)
            recording.record_exception(error)
            return ExceptionWrapper(where=self._where)

    def _fetched(self, index: Any) -> Any:
        """As torch's fetcher does it: a dataset may fetch batches, and get that ability at any time."""
        if (
            type(index) is not list
            or self._plan.is_iterable
            or not self._plan.auto_collation
            or getattr(self._dataset, "__getitems__", None)
        ):
            return self._fetcher.fetch(index)
        return self._collated(self._samples(index))

    def _fetched_good(self, index: Any, sieve: Sieve) -> Any:
        """Without the items that raise."""
        items = list(index) if self._plan.auto_collation else [index]
        fates: dict[int, Any] = {}
        try:
            value = self._fetched(index)
        except Exception as error:  # noqa: BLE001  # raised again where no item is to blame
            value = self._sifted(items, fates, error, sieve)
        sieve.good += len(items) - len(fates)
        return value

    def _sifted(self, items: list[Any], fates: dict[int, Any], error: Exception, sieve: Sieve) -> Any:
        left = sieve.tries
        while (found := sieve.fates(items, fates)) is not None:
            # All pass by themselves: it raised by chance, or what puts them together does.
            left = sieve.tries if found else left - 1
            if left < 0:
                break
            fates |= found
            loader_random.restore(self._watch.snapshot)
            try:
                return self._fetched_by_fate(items, fates)
            except Exception as another:  # noqa: BLE001  # of the batch, which goes to the trainer
                error = another
        sieve.take()
        raise error

    def _fetched_by_fate(self, items: list[Any], fates: dict[int, Any]) -> Any:
        assert worker.current is not None
        left = [at for at in range(len(items)) if fates.get(at) is not LEFT_OUT]
        if not left:
            return Skipped()
        if not self._plan.auto_collation or getattr(self._dataset, "__getitems__", None):
            good = [fates.get(at, items[at]) for at in left]
            return self._fetcher.fetch(good if self._plan.auto_collation else good[0])
        # All are named, so that a death is found at its place in the batch; those that are left out are not asked for.
        dataset, named = self._dataset, recording.NamedIndices(items, worker.current.items)
        samples = [dataset[fates.get(at, item)] for at, item in enumerate(named) if at in left]
        worker.current.at_item(WHOLE_BATCH, time.monotonic_ns())
        return self._collated(samples)

    def _samples(self, indices: list[Any]) -> list[Any]:
        """One by one, and each named."""
        assert worker.current is not None
        dataset, named = self._dataset, recording.NamedIndices(indices, worker.current.items)
        samples = [dataset[index] for index in named]
        self._slowest = named.slowest
        worker.current.at_item(WHOLE_BATCH, time.monotonic_ns())
        return samples

    def _collated(self, samples: list[Any]) -> Any:
        """By what the user gave us, or in its way. Once it was unusual, it will be again."""
        if self._gatherer is not None and type(samples) is list:
            try:
                return self._gatherer.gather(samples)
            except Unusual:
                self._gatherer = None
        return self._plan.collate_fn(samples)


def _drop(_samples: Any) -> None:
    pass


class _Stream:
    """An iterable dataset, with access to the iterator that torch's fetcher makes of it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.iterator: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.iterator = iter(self.dataset)
        return self.iterator  # type: ignore[no-any-return]

    def state(self) -> Any:
        """Of the iterator, else of the dataset; None: neither has one, or there is no stream."""
        if self.iterator is None:
            return None
        if hasattr(self.iterator, "state_dict"):
            return ("iterator", self.iterator.state_dict())
        return ("dataset", self.dataset.state_dict()) if hasattr(self.dataset, "state_dict") else None

    def load_before(self, state: tuple[str, Any]) -> None:
        if state[0] == "dataset":
            self.dataset.load_state_dict(state[1])

    def load_after(self, state: tuple[str, Any]) -> None:
        if state[0] == "iterator":
            self.iterator.load_state_dict(state[1])


__all__ = ["FIRST_PROBE", "WHOLE_BATCH", "Fetched", "Past", "Plan", "fetch", "prepare", "resume"]
