"""torch.multiprocessing.spawn: the number that its function is called with is the rank."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import RUN, note_called
from lastwords.record.kept import keep_own_box


def adapt(module: ModuleType) -> None:
    wrap = module._wrap

    # Outside of the `try` that makes the traceback its parent shows: no line of ours is in that.
    @functools.wraps(wrap)
    def _wrap(fn: Any, i: int, *args: Any) -> Any:
        _native.describe(role="spawned process", rank=i)
        keep_own_box()
        note_called(fn)
        _native.begin(None, f"rank {i} of torch.multiprocessing.spawn", RUN)
        result = wrap(_native.Told(fn, functools.partial(record_exception, fatal=True)), i, *args)
        _native.end()
        return result

    module._wrap = _wrap  # type: ignore[attr-defined]
