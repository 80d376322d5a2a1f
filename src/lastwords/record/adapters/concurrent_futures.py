"""concurrent.futures.ProcessPoolExecutor: the task a worker took is its item, until its result is sent."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import note_called


def adapt(module: ModuleType) -> None:
    # Workers take their tasks from a `_SafeQueue`; nobody else calls its `get`.
    module._SafeQueue.get = _native.TakesTasks(
        module._SafeQueue.get, module._process_chunk, functools.partial, note_called
    )
    _record_exceptions(module)


def _record_exceptions(module: ModuleType) -> None:
    """A worker packs every exception of a task into this class, with the traceback still on it."""
    pack = module._ExceptionWithTraceback.__init__

    @functools.wraps(pack)
    def __init__(self: Any, exc: BaseException, tb: Any) -> None:
        record_exception(exc)
        pack(self, exc, tb)

    module._ExceptionWithTraceback.__init__ = __init__
