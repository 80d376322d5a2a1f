"""Items of a `map` without a chunk size: each is a task of its own, but neighbours travel together.

A stretch is handed out like so many tasks, and cut to what a worker has room for. The worker runs one item after the
other and publishes each result before the next one begins; what it has not begun can be taken back at any time, and an
item that fails fails alone. So all is as with single tasks, at a fraction of their price: of 100 µs, those took 15.

Only plain values travel together, and functions that a name stands for: what two items of one pickle share, the first
could change under the second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from itertools import chain
from time import monotonic
from types import FunctionType, ModuleType
from typing import Any

from lastwords.survive import pickling, worker
from lastwords.survive.chunks import Chunk, Several, Single, cut
from lastwords.survive.tasks import Task

PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
LENGTH = 256
"""Items that a `map` is cut into at first. More save little: a worker takes as many as it has room for."""


class Section(Chunk):
    """Neighbouring items of a `map`. Their results are handed out one by one, as soon as those before them are there."""

    def __init__(self, work: Callable[..., Any], items: Sequence[Any], label: int, *, rows: bool) -> None:
        super().__init__(work, items, label, rows=rows)
        self._are_plain = _has_no_state(work) and _are_plain(items, rows=rows)
        self._is_there = bytearray(len(items))
        self._changed = threading.Condition(threading.Lock())
        self._awaited = 0
        self._is_wanted = True

    def begins(self) -> bool:
        return self._is_wanted

    def forget(self) -> None:
        """Nobody asks for the results any more: what no worker has is not run."""
        self._is_wanted = False

    def pieces(self, start: int, end: int) -> list[Task]:
        if self._are_plain and start < end:
            return [Stretch(self, start, end)]
        return [Single(self, position) for position in range(start, end)]

    def put(self, start: int, values: list[Any]) -> None:
        with self._changed:
            super().put(start, values)
            self._tell(start, start + len(values))

    def fail(self, start: int, end: int, error: BaseException) -> None:
        with self._changed:
            super().fail(start, end, error)
            self._tell(start, end)

    def cancel(self, start: int, end: int) -> None:
        self.fail(start, end, futures.CancelledError())

    def each(self, end: float | None) -> Iterator[Any]:
        """In order; raises at the first that failed."""
        position = 0
        while position < len(self.items):
            values, error = self._wait_for(position, end)
            position += len(values)
            values.reverse()
            while values:
                yield values.pop()  # and no reference to it stays behind
            if error is not None:
                raise error

    def _wait_for(self, position: int, end: float | None) -> tuple[list[Any], BaseException | None]:
        """What is there from `position` on without a gap, and what the one behind it raised."""
        with self._changed:
            self._awaited = position
            patience = None if end is None else end - monotonic()
            if not self._changed.wait_for(lambda: self._is_there[position], patience):
                raise futures.TimeoutError
            gap = self._is_there.find(0, position)
            reached = len(self.items) if gap < 0 else gap
            reached = min((at for at in self._errors if position <= at < reached), default=reached)
            values = self._results[position:reached]
            self._results[position:reached] = [None] * len(values)
            return values, self._errors.get(reached)

    def _tell(self, start: int, end: int) -> None:
        self._is_there[start:end] = b"\1" * (end - start)
        if start <= self._awaited < end:
            self._changed.notify_all()

    def _finish(self, count: int) -> None:
        """Nobody waits for all of them."""


def _has_no_state(work: object) -> bool:
    """A method brings its object along: each call has a copy of its own."""
    return type(work) is FunctionType or isinstance(getattr(work, "__self__", None), ModuleType)


def _are_plain(items: Sequence[Any], *, rows: bool) -> bool:
    if isinstance(items, range):
        return True
    return PLAIN.issuperset(map(type, chain.from_iterable(items) if rows else items))


class Stretch(Several):
    """Some items of a section, in the hands of one worker or waiting to be."""

    __slots__ = ("size",)

    def __init__(self, section: Chunk, start: int, end: int) -> None:
        super().__init__(section, start, end)
        self.work = run_stretch
        self.size = end - start

    def cut(self, most: int) -> tuple[Task, Task]:
        middle = self.start + most
        return Stretch(self.chunk, self.start, middle), Stretch(self.chunk, middle, self.end)

    def middle_behind(self, position: int) -> int | None:
        begun = self._sent_from + position + 1
        left = self.end - begun
        return position + 1 + left // 2 if left > 0 else None

    def give_away(self, position: int) -> Task:
        rest = Stretch(self.chunk, self._sent_from + position, self.end)
        self.end = rest.start
        self.size -= rest.size
        return rest

    @property
    def _sent_from(self) -> int:
        return self.label - self.chunk.label

    def part(self, value: Any) -> int:
        """Of the items that come next: a list of their results, or what one of them raised."""
        if self.is_spoilt or not self.size:  # an interrupt after the last one is nobody's
            return 0
        if isinstance(value, pickling.Failed):
            self.chunk.fail(self.start, self.start + 1, pickling.load_exception(value.data))
            count = 1
        else:
            self.chunk.put(self.start, value)
            count = len(value)
        self.start += count
        self.size -= count
        return count

    def succeeded(self, value: Any) -> Task | None:
        """It has come to the end, or to what was taken back. That may not be ours yet: then it is now."""
        del value  # all results have come as parts
        return Stretch(self.chunk, self.start, self.end) if self.start < self.end else None


def run_stretch(work: Callable[..., Any], items: Sequence[Any], rows: bool, label: int) -> None:  # noqa: FBT001
    """In a worker."""
    assert worker.current is not None
    worker.current.run_stretch(work, items, label, rows=rows)


run_stretch.marks_its_items = True  # type: ignore[attr-defined]


def sections(work: Callable[..., Any], iterables: tuple[Iterable[Any], ...]) -> Iterator[Section]:
    label = 0
    for items in cut(iterables, LENGTH):
        yield Section(work, items, label, rows=len(iterables) != 1)
        label += len(items)


def results(made: list[Section], end: float | None) -> Iterator[Any]:
    """In order; raises at the first item that failed, when those before it have been handed out."""
    made.reverse()
    try:
        while made:
            yield from made[-1].each(end)
            made.pop()
    finally:
        for section in made:
            section.forget()
