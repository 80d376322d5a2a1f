"""Naming what a process is working on."""

from __future__ import annotations

from lastwords import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import TypeVar

    T = TypeVar("T")

IDLE, FETCH, TRANSFORM, COLLATE, SEND, RUN, LOAD = range(7)


class item:  # noqa: N801  # used as `with lastwords.item(...)`
    """Says what the code inside works on; a death in it is then a death "on item KEY"."""

    __slots__ = ("_index", "_key")

    def __init__(self, key: object, index: int | None = None) -> None:
        self._key = str(key)
        self._index = index

    def __enter__(self) -> None:
        _native.begin(self._index, self._key, RUN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            from lastwords.record.endings import record_exception

            record_exception(error)
        _native.end()


def each(items: Iterable[T]) -> Iterator[T]:
    """The same items, each marked by its number while the loop's body works on it."""
    from lastwords.record.endings import record_exception

    return _native.MarkedItems(iter(items), record_exception)


def each_row(batches: Iterable[Iterable[T]]) -> Iterator[T]:
    """As `each` of the rows of all batches, for batches that are lists: those are gone through without Python's help."""
    from lastwords.record.endings import record_exception

    return _native.marked_rows(iter(batches), record_exception)


_last_called: object = None


def note_called(function: object) -> None:
    """Notes where the function begins that items are handed to; once, as long as it stays the same."""
    global _last_called
    if function is _last_called:
        return
    _last_called = function
    code = getattr(_unwrapped(function), "__code__", None)
    if code is not None:
        _native.calls(f"{code.co_filename}:{code.co_firstlineno} {code.co_name}")


def _unwrapped(function: object) -> object:
    inner: object = getattr(function, "func", None)
    return _unwrapped(inner) if callable(inner) else function  # functools.partial
