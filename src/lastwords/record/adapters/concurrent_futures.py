"""concurrent.futures.ProcessPoolExecutor: the task a worker took is its item, until its result is sent."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import RUN, SEND, note_called


def adapt(module: ModuleType) -> None:
    _mark_taken_tasks(module)
    _mark_sent_results(module)
    _record_exceptions(module)


def _mark_taken_tasks(module: ModuleType) -> None:
    """Workers take their tasks from a `_SafeQueue`; nobody else calls its `get`."""
    take = module._SafeQueue.get

    @functools.wraps(take)
    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        task = take(self, *args, **kwargs)
        if task is not None:
            _mark(task, module._process_chunk)
        return task

    module._SafeQueue.get = get


def _mark(task: Any, process_chunk: Any) -> None:
    """`map` sends chunks: within one, each call is an item of its own."""
    if getattr(task.fn, "func", None) is process_chunk:
        (fn,), (chunk,) = task.fn.args, task.args
        note_called(fn)
        task.args = (_each_marked(fn, chunk, task.work_id if len(chunk) == 1 else None),)
    else:
        note_called(task.fn)
        _native.begin_call(task.work_id, RUN, task.fn, task.args, task.kwargs)


def _each_marked(fn: Any, chunk: Any, index: int | None) -> Iterator[Any]:
    """`index` is the task's number; within a longer chunk only the arguments name the call."""
    for args in chunk:
        _native.begin_call(index, RUN, fn, args, None)
        yield args
        _native.end()


def _mark_sent_results(module: ModuleType) -> None:
    send = module._sendback_result

    @functools.wraps(send)
    def _sendback_result(*args: Any, **kwargs: Any) -> Any:
        _native.phase(SEND)
        try:
            return send(*args, **kwargs)
        finally:
            _native.end()

    module._sendback_result = _sendback_result  # type: ignore[attr-defined]


def _record_exceptions(module: ModuleType) -> None:
    """A worker packs every exception of a task into this class, with the traceback still on it."""
    pack = module._ExceptionWithTraceback.__init__

    @functools.wraps(pack)
    def __init__(self: Any, exc: BaseException, tb: Any) -> None:
        record_exception(exc)
        pack(self, exc, tb)

    module._ExceptionWithTraceback.__init__ = __init__
