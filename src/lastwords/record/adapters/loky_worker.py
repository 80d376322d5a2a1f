"""loky, and the copy of it in joblib: the task that a worker took is its item, until it asks for the next."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.items import RUN, note_called

NAMED = 4


def adapt(module: ModuleType) -> None:
    queue: Any = module._SafeQueue
    take = queue.get

    @functools.wraps(take)
    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        _native.end()
        task = take(self, *args, **kwargs)
        try:
            _mark(task)
        except Exception:
            pass  # a loky that is built otherwise goes unmarked, and works
        return task

    queue.get = get


def _mark(task: Any) -> None:
    if task is None:
        return
    calls = _calls_of_joblib(task.fn) or _calls_of_map(task)
    if calls is None:
        note_called(task.fn)
        _native.begin_call(task.work_id, RUN, task.fn, task.args, task.kwargs)
        return
    note_called(calls[0][0])
    texts = [_native.describe_call(*call) for call in calls[:NAMED]]
    more = ", …" if len(calls) > NAMED else ""
    text = texts[0] if len(calls) == 1 else f"batch of {len(calls)}: {', '.join(texts)}{more}"
    _native.begin(None, text, RUN)


def _calls_of_joblib(function: Any) -> list[Any] | None:
    """Joblib sends batches of calls, inside two callables of its own. (1.6)"""
    for _ in range(4):
        items = getattr(function, "items", None)
        if (
            isinstance(items, list)
            and items
            and all(isinstance(one, tuple) and len(one) == 3 for one in items)
        ):
            return items
        function = getattr(function, "func", None) or getattr(function, "_obj", None)
    return None


def _calls_of_map(task: Any) -> list[Any] | None:
    """`Executor.map` sends chunks: a partial of loky's own function, with the job's function inside."""
    function = task.fn
    if getattr(getattr(function, "func", None), "__name__", "") != "_process_chunk":
        return None
    return [(function.args[0], arguments, {}) for arguments in task.args[0]] or None
