"""multiprocessing.Pool, and `multiprocess`, the copy of it that Hugging Face datasets uses: the task that a worker took
is its item.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import RUN, note_called


def adapt(module: ModuleType) -> None:
    work: Any = module.worker
    mapstar = module.mapstar

    # Outside of the `try` that makes the traceback its parent shows: no line of ours is in that.
    @functools.wraps(work)
    def worker(inqueue: Any, *args: Any, **kwargs: Any) -> Any:
        return work(_Marking(inqueue, mapstar), *args, **kwargs)

    module.worker = worker  # type: ignore[attr-defined]
    _record_exceptions(module)


class _Marking:
    """The queue of tasks. Everything but `get` is the queue's own."""

    def __init__(self, queue: Any, mapstar: Any) -> None:
        self._lastwords_queue = queue
        self._lastwords_mapstar = mapstar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lastwords_queue, name)

    def get(self) -> Any:
        _native.end()
        task = self._lastwords_queue.get()
        if type(task) is tuple and len(task) == 5:
            try:
                self._mark(*task)
            except Exception:
                pass  # a pool that is built otherwise goes unmarked, and works
        return task

    def _mark(self, _job: Any, index: Any, function: Any, args: Any, kwargs: Any) -> None:
        if function is self._lastwords_mapstar:
            # `map` and its relatives send chunks: a function and the arguments that it is called with in turn.
            function, chunk = args[0]
            note_called(function)
            calls = tuple(chunk)
            first = _native.describe_call(function, calls[0] if type(calls[0]) is tuple else calls[:1], {})
            text = first if len(calls) == 1 else f"chunk {index} of {len(calls)} calls, the first {first}"
            _native.begin(None, text, RUN)
        else:
            note_called(function)
            _native.begin_call(index if isinstance(index, int) else None, RUN, function, args, kwargs)


def _record_exceptions(module: Any) -> None:
    """A worker packs every exception of a task into this class, with the traceback still on it."""
    pack = module.ExceptionWithTraceback.__init__

    @functools.wraps(pack)
    def __init__(self: Any, exc: BaseException, tb: Any) -> None:
        record_exception(exc)
        pack(self, exc, tb)

    module.ExceptionWithTraceback.__init__ = __init__
