"""In a Python worker: each row, batch or group is marked while the job's function works on it.

`adapt` is called when pyspark.worker has been imported, which its daemon does after the fork. The functions that read
a task's command return its deserializer: that one is stood in for, and so is the one place where a worker hands an
exception over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from types import ModuleType
from typing import Any

import lastwords
from lastwords import recording
from lastwords.engines.batches import each_batch
from lastwords.engines.spark import ENGINE, executor

READERS = ("read_command", "read_udfs", "read_udtf")
MOST_CLOSURES = 64


@ENGINE.guarded
def adapt(module: ModuleType) -> None:
    for name in READERS:
        if hasattr(module, name):
            setattr(module, name, _marking(getattr(module, name)))
    if hasattr(module, "read_single_udf"):
        _count_rows_of_retries(module)
    if hasattr(module, "handle_worker_exception"):  # Spark 3.5 does it in the middle of a long function
        _note_exceptions(module)


def _marking(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def read_marked(*args: Any, **kwargs: Any) -> Any:
        found = read(*args, **kwargs)
        return ENGINE.guarded(_marked)(found) or found

    return read_marked


def _marked(found: Any) -> Any:
    """`read_command` also reads other things than a task's four parts: those pass."""
    if type(found) is not tuple or len(found) != 4 or not hasattr(found[2], "load_stream"):
        return found
    function, profiler, deserializer, serializer = found
    recording.note_called(_users(function))
    if _makes_its_rows(function):
        function = _counting_results(function)
    return function, profiler, MarkedSource(deserializer), serializer


def _users(function: Any) -> Any:
    """The job's own function, inside the closures that Spark puts around it. (A kill leaves no frames.)"""
    within = list(_closed_over(function))
    return next((one for one in within if not _is_sparks(one) and _has_code(one)), within[-1])


def _makes_its_rows(function: Any) -> bool:
    """`parallelize(range(n))` sends no rows to its workers, but how to make them."""
    names = (getattr(one, "__qualname__", "") for one in _closed_over(function))
    return any(name.startswith("SparkContext.parallelize.") for name in names)


def _closed_over(function: Any) -> Iterator[Any]:
    """The function, and those that it and they have in their closures, from the outside in."""
    waiting = [function]
    for _ in range(MOST_CLOSURES):
        if not waiting:
            return
        found = waiting.pop(0)
        yield found
        for cell in getattr(found, "__closure__", None) or ():
            waiting += _functions_in(_held(cell), 2)


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _functions_in(held: Any, depth: int) -> Iterator[Any]:
    """Spark 4.3 keeps the functions of a plain UDF in a list of pairs, with the columns that they take."""
    if callable(held) and not isinstance(held, type):
        yield held
    elif depth and isinstance(held, (list, tuple)):
        for one in held[:MOST_CLOSURES]:
            yield from _functions_in(one, depth - 1)


def _is_sparks(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("pyspark.")


def _has_code(function: Any) -> bool:
    return hasattr(function, "__code__") or hasattr(function, "func")  # functools.partial


def _counting_results(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns before the first row is made, so that no frame of ours is in a traceback."""

    @functools.wraps(function)
    def counting(*args: Any, **kwargs: Any) -> Any:
        # One more in front: row n is then marked while it is made, and not when it is done.
        marked = lastwords.each(chain((None,), function(*args, **kwargs)))
        next(marked)
        return marked

    return counting


class MarkedSource:
    """Stands in for a task's deserializer: each row, batch or group is an item, until the next one is asked for."""

    def __init__(self, real: Any) -> None:
        self.__dict__["real"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.real, name, value)

    def load_stream(self, stream: Any) -> Iterator[Any]:
        if _in_lists(self.real):
            return recording.each_row(self.real._load_stream_without_unbatching(stream))
        items = self.real.load_stream(stream)
        kind = type(self.real).__name__
        if "Group" in kind:
            return each_batch(items, _rows, "group")
        if "Arrow" in kind:
            return each_batch(items, _rows)
        return lastwords.each(items)


def _in_lists(deserializer: Any) -> bool:
    """Whether its `load_stream` is that of pickled batches: what it chains are lists."""
    from pyspark.serializers import BatchedSerializer

    kind = type(deserializer)
    return isinstance(deserializer, BatchedSerializer) and all(
        getattr(kind, name) is getattr(BatchedSerializer, name)
        for name in ("load_stream", "_load_stream_without_unbatching")
    )


def _rows(item: Any) -> int | None:
    return getattr(item, "num_rows", None)


def _count_rows_of_retries(module: ModuleType) -> None:
    """A plain UDF gets its rows in Arrow batches, out of which it is called for each.

    To count those calls would cost a healthy job several per cent. So it is done where something has gone wrong
    before: the first attempt of a task tells the batch that killed it, and every later one the row.
    """
    read = module.read_single_udf
    kind = getattr(module.PythonEvalType, "SQL_ARROW_BATCHED_UDF", None)

    @functools.wraps(read)
    def read_single_udf(*args: Any, **kwargs: Any) -> Any:
        found = read(*args, **kwargs)
        is_retry = kind is not None and kind in args and executor.attempt() > 0
        return (ENGINE.guarded(_counted)(found) or found) if is_retry else found

    module.read_single_udf = read_single_udf  # type: ignore[attr-defined]


def _counted(found: Any) -> Any:
    if type(found) is not tuple or not found or not callable(found[0]):
        return found
    function, step = found[0], lastwords.each(repeat(None)).__next__

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        step()
        return function(*args, **kwargs)

    return (counted, *found[1:])


def _note_exceptions(module: ModuleType) -> None:
    """A Python exception reaches the driver with its traceback: what is missing there is the row and the host."""
    hand_over = module.handle_worker_exception

    @functools.wraps(hand_over)
    def handle_worker_exception(error: BaseException, *args: Any, **kwargs: Any) -> Any:
        ENGINE.guarded(_note)(error)
        return hand_over(error, *args, **kwargs)

    module.handle_worker_exception = handle_worker_exception  # type: ignore[attr-defined]


def _note(error: BaseException) -> None:
    where = executor.where_it_is()
    recording.record_exception(error)
    recording.end_item()
    if where is not None and isinstance(error, Exception) and hasattr(error, "add_note"):
        error.add_note(f"lastwords: {where}")
