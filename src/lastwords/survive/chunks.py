"""Chunks of a `map`: many items in one task, and still only the item that kills is lost.

The worker says which item it is at, and publishes results as it goes. When it dies, the items that are finished stay
finished, the one that killed is tried alone, and the others go on as chunks of their own. Where nobody can say which
item it was (the chunk kills while it is loaded, or its results while they are sent), the chunk is halved, and halved
again, until one item is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from lastwords import recording
from lastwords.survive import worker
from lastwords.survive.future import LightFuture
from lastwords.survive.tasks import Task

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lastwords.survive.deaths import Death

MISSING: Any = object()


class Chunk:
    """What became of some neighbouring items of a `map`. `rows`: each item is the tuple of its arguments."""

    def __init__(self, work: Callable[..., Any], items: Sequence[Any], label: int, *, rows: bool) -> None:
        self.work = work
        self.items = items
        self.label = label
        self.rows = rows
        self.future: Future[tuple[list[Any], dict[int, BaseException]]] = LightFuture()
        """Of all results, and the errors by position."""
        self._has_begun = False
        self._results: list[Any] = [MISSING] * len(items)
        self._errors: dict[int, BaseException] = {}
        self._left = len(items)

    def call(self, position: int) -> tuple[Any, ...]:
        item = self.items[position]
        return item if self.rows else (item,)

    def begins(self) -> bool:
        if not self._has_begun:
            self._has_begun = self.future.set_running_or_notify_cancel()
        return self._has_begun

    def pieces(self, start: int, end: int) -> list[Task]:
        """Tasks that do these items."""
        if end - start <= 1:
            return [Single(self, position) for position in range(start, end)]
        return [Several(self, start, end)]

    def cancel(self, start: int, end: int) -> None:  # noqa: ARG002  # for those who override it
        """Nobody runs these."""
        self.future.cancel()
        self.future.set_running_or_notify_cancel()

    def put(self, start: int, values: list[Any]) -> None:
        self._results[start : start + len(values)] = values
        self._finish(len(values))

    def fail(self, start: int, end: int, error: BaseException) -> None:
        """The first of them raised it, and so the others never ran."""
        self._errors[start] = error
        self._finish(end - start)

    def _finish(self, count: int) -> None:
        self._left -= count
        if count and not self._left and self.begins():
            self.future.set_result((self._results, self._errors))


class _OfChunk(Task):
    """Some items of a chunk: from `start` on, up to `end`."""

    __slots__ = ("chunk", "end", "start")

    def __init__(
        self, chunk: Chunk, start: int, end: int, work: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        super().__init__(work, args, label=chunk.label + start)
        self.chunk = chunk
        self.start = start
        self.end = end

    def begins(self) -> bool:
        return self.chunk.begins()

    def failed(self, error: BaseException) -> None:
        self.chunk.fail(self.start, self.end, error)

    def cancelled(self) -> None:
        self.chunk.cancel(self.start, self.end)

    def left(self) -> list[Task]:
        return self.chunk.pieces(self.start, self.end)


class Single(_OfChunk):
    """One item: a call like any other."""

    __slots__ = ()

    def __init__(self, chunk: Chunk, position: int) -> None:
        super().__init__(chunk, position, position + 1, chunk.work, chunk.call(position))

    def succeeded(self, value: Any) -> None:
        self.chunk.put(self.start, [value])


class Several(_OfChunk):
    __slots__ = ("is_spoilt",)

    def __init__(self, chunk: Chunk, start: int, end: int) -> None:
        arguments = (chunk.work, chunk.items[start:end], chunk.rows, chunk.label + start)
        super().__init__(chunk, start, end, run_items, arguments)
        self.is_spoilt = False

    def succeeded(self, value: Any) -> Task | None:
        if not self.is_spoilt:
            self.chunk.put(self.start, value)
        return None

    def part(self, value: Any) -> int:
        if not self.is_spoilt:
            self.chunk.put(self.start, value)
            self.start += len(value)
        return 0  # all of it is one task

    def spoil(self, error: BaseException) -> None:
        """How many items that were is in the part that cannot be read: it and all behind it fail."""
        if not self.is_spoilt:
            self.is_spoilt = True
            self.chunk.fail(self.start, self.end, error)

    def failed(self, error: BaseException) -> None:
        self.spoil(error)

    def words(self, death: Death) -> str:
        position = self._position(death)
        if position is None:
            name = recording.describe_call(self.chunk.work, (), {})
            return f"one of {self.end - self.start} calls of {name}"
        return recording.describe_call(self.chunk.work, self.chunk.call(position), {})

    def split(self, death: Death) -> tuple[Task | None, list[Task]]:
        """Who did it, if that is known, and all the others."""
        guilty = self._position(death)
        if guilty is not None:
            pieces = self.chunk.pieces
            rest = [*pieces(self.start, guilty), *pieces(guilty + 1, self.end)]
            return Single(self.chunk, guilty), rest
        end = self._end_of_suspicion(death)
        middle = (self.start + end) // 2
        bounds = ((self.start, middle), (middle, end), (end, self.end))
        return None, [piece for one in bounds for piece in self.chunk.pieces(*one)]

    def _position(self, death: Death) -> int | None:
        if self._end_of_suspicion(death) - self.start == 1:
            return self.start
        said = self.label - self.chunk.label + death.position
        is_said = death.step == "running" and self.start <= said < self.end
        return said if is_said else None

    def _end_of_suspicion(self, death: Death) -> int:
        """Results are sent of the items that were worked on, and of no others."""
        worked_on = self.label - self.chunk.label + death.position + 1
        return (
            worked_on
            if death.step == "sending its result" and self.start < worked_on < self.end
            else self.end
        )


def run_items(work: Callable[..., Any], items: Sequence[Any], rows: bool, label: int) -> list[Any]:  # noqa: FBT001
    """In a worker."""
    assert worker.current is not None
    return worker.current.run_items(work, items, label, rows=rows)


run_items.marks_its_items = True  # type: ignore[attr-defined]


def chunks(
    work: Callable[..., Any], iterables: tuple[Iterable[Any], ...], size: int
) -> Iterator[tuple[Chunk, Task]]:
    """Each with the task that runs it."""
    label = 0
    for items in cut(iterables, size):
        chunk = Chunk(work, items, label, rows=len(iterables) != 1)
        yield chunk, chunk.pieces(0, len(items))[0]
        label += len(items)


def cut(iterables: tuple[Iterable[Any], ...], size: int) -> Iterator[Sequence[Any]]:
    """So many items at a time: rows, or those of the only iterable, which need no tuple each.

    A range stays one: its numbers are made where they are needed, and none of them is pickled.
    """
    first = iterables[0]
    if len(iterables) == 1 and isinstance(first, range):
        yield from (first[start : start + size] for start in range(0, len(first), size))
        return
    items = zip(*iterables, strict=False) if len(iterables) != 1 else iter(first)
    while some := list(islice(items, size)):
        yield some


def results(made: list[Chunk], end: float | None) -> Iterator[Any]:
    """In order; raises at the first item that failed, when those before it have been handed out."""
    return chain.from_iterable(
        _lists(made, end)
    )  # a generator's `yield` costs as much as the rest of the way


def _lists(made: list[Chunk], end: float | None) -> Iterator[list[Any]]:
    try:
        made.reverse()
        while made:
            values, errors = made.pop().future.result(None if end is None else end - monotonic())
            if errors:
                first = min(errors)
                yield values[:first]
                raise errors[first]
            yield values
    finally:
        for chunk in made:
            chunk.future.cancel()
