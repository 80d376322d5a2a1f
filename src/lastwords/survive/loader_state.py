"""Where a loader is in its epoch, as a small dictionary: saved with a checkpoint, and gone on from in another process.

Exact with several workers: it has the random numbers of each after the last batch that the trainer was given, not after
the last one that was prefetched. The sampler is wound forward from where its epoch began.
"""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from lastwords.survive import loader_random
from lastwords.survive.loader_report import Record
from lastwords.survive.loader_worker import Past, _Stream

VERSION = 1


def epoch_start(loader: Any) -> dict[str, Any]:
    """What decides the order of the epoch that is about to begin."""
    sampler = loader.batch_sampler if hasattr(loader.batch_sampler, "state_dict") else loader.sampler
    return {
        "version": VERSION,
        "num_workers": loader.num_workers,
        "random": loader_random.Watch().snapshot,
        "generator": loader.generator.get_state() if loader.generator is not None else None,
        "sampler": copy.deepcopy(sampler.state_dict()) if hasattr(sampler, "state_dict") else None,
    }


def batches_of(loader: Any) -> int:
    """Of an epoch; 0: nobody knows. Whoever asks an iterable dataset is warned later, if it has more: we do not count."""
    asked = loader._IterableDataset_len_called
    try:
        return len(loader)
    except TypeError:
        return 0
    finally:
        loader._IterableDataset_len_called = asked


def check(state: Any, loader: Any) -> None:
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ValueError("this is no state of a lastwords DataLoader, or one of another version")
    if state["num_workers"] != loader.num_workers:
        raise ValueError(
            f"the state is of a loader with num_workers={state['num_workers']}, and this one has {loader.num_workers}: "
            "each worker goes on with its own random numbers, so their number must be the same"
        )


class at_epoch_start:  # noqa: N801  # used as `with at_epoch_start(...)`
    """The random numbers and the sampler as they were; afterwards the trainer's own random numbers are as they are now."""

    def __init__(self, loader: Any, state: dict[str, Any] | None) -> None:
        self._loader = loader
        self._state = state

    def __enter__(self) -> None:
        if self._state is None:
            return
        self._now = loader_random.Watch().snapshot
        loader_random.restore(self._state["random"])
        if self._state["generator"] is not None and self._loader.generator is not None:
            self._loader.generator.set_state(self._state["generator"])
        for sampler in (self._loader.batch_sampler, self._loader.sampler):
            if self._state["sampler"] is not None and hasattr(sampler, "load_state_dict"):
                sampler.load_state_dict(copy.deepcopy(self._state["sampler"]))
                break

    def __exit__(self, *_: object) -> None:
        if self._state is not None:
            loader_random.restore(self._now)


def wind(iterator: Iterator[Any], count: int) -> None:
    deque(itertools.islice(iterator, count), maxlen=0)


def begun(iterator: Iterator[Any]) -> Iterator[Any]:
    """The same, and has drawn the random numbers that a sampler draws when it is first asked."""
    return itertools.chain(list(itertools.islice(iterator, 1)), iterator)


def pasts_as_state(pasts: list[Past | None]) -> list[Any]:
    """Plain, so that it can be saved by anything."""
    return [None if past is None else astuple(past) for past in pasts]


def pasts_of_state(state: list[Any]) -> list[Past | None]:
    return [None if past is None else Past(*past) for past in state]


class SingleProcessIterator(_SingleProcessDataLoaderIter):  # type: ignore[misc]  # torch is not looked into
    """torch's own without workers, and able to say where it is."""

    _sampler_iter: Any

    def __init__(self, loader: Any, record: Record, state: dict[str, Any] | None) -> None:
        self._start = state or epoch_start(loader)
        self._stream: _Stream | None = None
        self._record = record
        super().__init__(loader)
        self._is_finished = False
        if self._dataset_kind == _DatasetKind.Iterable:
            self._follow_stream(state)
        elif state is not None:
            wind(self._sampler_iter, state["yielded"])
            self._sampler_iter = begun(self._sampler_iter)
        self._num_yielded = state["yielded"] if state is not None else 0
        if loader.progress is not None:
            record.show(loader.progress, batches_of(loader), self._num_yielded)

    def _follow_stream(self, state: dict[str, Any] | None) -> None:
        stream = self._stream = _Stream(self._dataset)
        stream.iterator = self._dataset_fetcher.dataset_iter
        if state is None:
            return
        if state["stream"] is None:
            for _ in range(state["yielded"]):
                self._dataset_fetcher.fetch(self._next_index())
            return
        stream.load_before(state["stream"])
        self._dataset_fetcher.dataset_iter = iter(stream)
        stream.load_after(state["stream"])

    def _next_data(self) -> Any:
        since = self._record.wanted()
        try:
            data = super()._next_data()
        except StopIteration:
            self._record.pause()
            self._is_finished = True
            raise
        self._record.got(since)
        return data

    def state(self) -> dict[str, Any]:
        stream = self._stream.state() if self._stream is not None else None
        return self._start | {
            "yielded": self._num_yielded,
            "is_finished": self._is_finished,
            "stream": copy.deepcopy(stream),
        }
