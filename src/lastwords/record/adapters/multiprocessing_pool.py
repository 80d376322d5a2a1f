"""multiprocessing.Pool, and `multiprocess`, the copy of it that Hugging Face datasets uses: the task that a worker took
is its item.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import note_called


def adapt(module: ModuleType) -> None:
    work: Any = module.worker
    mapstar, starmapstar = module.mapstar, module.starmapstar

    # Outside of the `try` that makes the traceback its parent shows: no line of ours is in that.
    @functools.wraps(work)
    def worker(inqueue: Any, *args: Any, **kwargs: Any) -> Any:
        return work(_native.MarkedQueue(inqueue, mapstar, starmapstar, note_called), *args, **kwargs)

    module.worker = worker  # type: ignore[attr-defined]
    _record_exceptions(module)


def _record_exceptions(module: Any) -> None:
    """A worker packs every exception of a task into this class, with the traceback still on it."""
    pack = module.ExceptionWithTraceback.__init__

    @functools.wraps(pack)
    def __init__(self: Any, exc: BaseException, tb: Any) -> None:
        record_exception(exc)
        pack(self, exc, tb)

    module.ExceptionWithTraceback.__init__ = __init__
