"""concurrent.futures.ProcessPoolExecutor: the task a worker took is its item, until its result is sent."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import note_called

CALL = ("work_id", "fn", "args", "kwargs")
RESULT = ("work_id", "exception", "result", "exit_pid")


def adapt(module: ModuleType) -> None:
    _record_exceptions(module)
    _mark_items(module)


def _mark_items(module: Any) -> None:
    """What a task travels in, there and back: ours know when its function is called and when its result is sent."""
    check(module._CallItem, CALL)
    check(module._ResultItem, RESULT)
    module._CallItem, module._ResultItem = _native.pool_items(
        module._CallItem, module._ResultItem, module._process_chunk, functools.partial, note_called
    )


def check(kind: Any, fields: tuple[str, ...]) -> None:
    """A Python whose tasks have other fields goes unmarked, and works. (3.10 knows no `exit_pid`)"""
    code = kind.__init__.__code__
    found = code.co_varnames[1 : code.co_argcount]
    if found not in (fields, fields[:3]):
        raise TypeError(f"{kind.__name__} has other fields than we know: {', '.join(found)}")


def _record_exceptions(module: ModuleType) -> None:
    """A worker packs every exception of a task into this class, with the traceback still on it."""
    pack = module._ExceptionWithTraceback.__init__

    @functools.wraps(pack)
    def __init__(self: Any, exc: BaseException, tb: Any) -> None:
        record_exception(exc)
        pack(self, exc, tb)

    module._ExceptionWithTraceback.__init__ = __init__
