"""Where a loader is in its epoch, as a small dictionary: saved with a checkpoint, and gone on from in another process.

Exact with several workers: it has the random numbers of each after the last batch that the trainer was given, not after
the last one that was prefetched. The sampler is wound forward from where its epoch began.
"""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from lastwords.survive import loader_random
from lastwords.survive.loader_report import Record
from lastwords.survive.loader_worker import Past, _Stream

VERSION = 2


def epoch_start(loader: Any, *, is_seeded: bool = False) -> dict[str, Any]:
    """What decides the order of the epoch that is about to begin. `is_seeded`: of workers that stay, by their first."""
    sampler = loader.batch_sampler if hasattr(loader.batch_sampler, "state_dict") else loader.sampler
    generator = loader.generator
    return {
        "version": VERSION,
        "num_workers": loader.num_workers,
        "is_seeded": is_seeded,
        "random": loader_random.Watch().snapshot,
        "generator": None if generator is None else loader_random.generator_state(generator),
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


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """As it is given away: plain, so that anything can save it, JSON too. What samplers and datasets say is their own."""
    generator, workers = state["generator"], state.get("workers")
    given = state | {
        "random": loader_random.as_saved(state["random"]),
        "generator": None if generator is None else loader_random.text(generator),
    }
    if workers is not None:
        given["workers"] = [None if past is None else _saved_past(past) for past in workers]
    return given


def of_saved(given: dict[str, Any]) -> dict[str, Any]:
    try:
        generator, workers = given["generator"], given.get("workers")
        state = given | {
            "random": loader_random.of_saved(given["random"]),
            "generator": None if generator is None else loader_random.of_text(generator),
        }
        if workers is not None:
            state["workers"] = [None if past is None else _past_of_saved(past) for past in workers]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"the state of this DataLoader does not hold together, as if part of it had been lost: {error!r}"
        ) from error
    return state


def _saved_past(past: Past) -> list[Any]:
    """Not by `dataclasses.astuple`, which copies: some frameworks ask at every batch."""
    start = past.random_at_start
    return [
        loader_random.as_saved(past.random),
        None if start is None else loader_random.as_saved(start),
        past.passed,
        past.index,
        past.state,
    ]


def _past_of_saved(given: list[Any]) -> Past:
    numbers, start, *rest = given
    return Past(
        loader_random.of_saved(numbers), None if start is None else loader_random.of_saved(start), *rest
    )


def next_epoch(loader: Any, last: dict[str, Any]) -> dict[str, Any]:
    """From the end of an epoch. Workers that stay go on with their random numbers; others are seeded anew."""
    if not loader.persistent_workers:
        return epoch_start(loader) | {"is_finished": True}
    numbers = [None if one is None else one.random for one in last["workers"]]
    is_iterable = loader._dataset_kind == _DatasetKind.Iterable
    pasts = [None if one is None else Past(one, one if is_iterable else None) for one in numbers]
    return epoch_start(loader, is_seeded=True) | {
        "base_seed": last["base_seed"],
        "yielded": 0,
        "passed": 0,
        "is_finished": False,
        "next_worker": 0,
        "is_working": [True] * loader.num_workers,
        "workers": pasts,
    }


class at_epoch_start:  # noqa: N801  # used as `with at_epoch_start(...)`
    """The random numbers and the sampler as they were; afterwards the trainer's own random numbers are as they are now.

    Unless they are those of the epoch's start: then the trainer has been put back there, and goes on with the loader.
    """

    def __init__(self, loader: Any, state: dict[str, Any] | None) -> None:
        self._loader = loader
        self._state = state
        self._now: loader_random.Snapshot | None = None

    def __enter__(self) -> None:
        if self._state is None:
            return
        now = loader_random.Watch().snapshot
        if now != self._state["random"]:
            self._now = now
        put_back(self._loader, self._state)

    def __exit__(self, *_: object) -> None:
        if self._now is not None:
            loader_random.restore(self._now)


def put_back(loader: Any, state: dict[str, Any]) -> None:
    loader_random.restore(state["random"])
    if state["generator"] is not None and loader.generator is not None:
        loader_random.restore_generator(loader.generator, state["generator"])
    for sampler in (loader.batch_sampler, loader.sampler):
        if state["sampler"] is not None and hasattr(sampler, "load_state_dict"):
            sampler.load_state_dict(copy.deepcopy(state["sampler"]))
            break


class Places:
    """Where in the sampler's order the batches stand, whose numbers begin at 0 again in each process."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._drawn: int = state["passed"] if state is not None else 0
        self._pending: list[int] = list(state.get("pending", ())) if state is not None else []
        """Drawn by the process before, and not given: with in_order=False others have overtaken them."""

    def __getitem__(self, number: int) -> int:
        older = len(self._pending)
        return self._pending[number] if number < older else self._drawn + number - older

    def after(self, drawn: int, pending: Iterable[int] = ()) -> dict[str, Any]:
        """As state, by numbers of this process: so many are drawn, and of these some are not given."""
        older = self._pending[drawn:]
        passed = self._drawn + max(0, drawn - len(self._pending))
        return {"passed": passed, "pending": sorted([self[number] for number in pending] + older)}

    def wound(self, sampler: Iterator[Any]) -> Iterator[Any]:
        pending = set(self._pending)
        drawn = itertools.islice(sampler, self._drawn)
        again = [index for place, index in enumerate(drawn) if place in pending]
        return itertools.chain(again, sampler)


def wind(iterator: Iterator[Any], count: int) -> None:
    deque(itertools.islice(iterator, count), maxlen=0)


def begun(iterator: Iterator[Any]) -> Iterator[Any]:
    """The same, and has drawn the random numbers that a sampler draws when it is first asked."""
    return itertools.chain(list(itertools.islice(iterator, 1)), iterator)


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
        if state is not None and state["stream"] is None:
            for _ in range(state["yielded"]):
                self._dataset_fetcher.fetch(self._next_index())

    def load_dataset(self) -> None:
        """When the trainer's random numbers are its own again: a dataset may set them to those it has kept."""
        state = self._start.get("stream")
        if state is None:
            return
        if self._stream is None:
            self._dataset.load_state_dict(state[1])
        else:
            self._stream.load_before(state)
            self._dataset_fetcher.dataset_iter = iter(self._stream)
            self._stream.load_after(state)

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
        return self._start | {
            "yielded": self._num_yielded,
            "is_finished": self._is_finished,
            "stream": copy.deepcopy(self._state_of_dataset()),
        }

    def _state_of_dataset(self) -> Any:
        if self._stream is not None:
            return self._stream.state()
        has_state = hasattr(self._dataset, "state_dict") and hasattr(self._dataset, "load_state_dict")
        return ("dataset", self._dataset.state_dict()) if has_state else None
