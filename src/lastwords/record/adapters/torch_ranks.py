"""torchrun's ranks: which one this is, and the batch that its training loop works on.

Steps of the optimizer would say more, but a hook there is traced by torch.compile and breaks `fullgraph=True`.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.items import RUN
from lastwords.record.kept import keep_own_box

BEFORE = "the time before the first batch"


def adapt(module: ModuleType) -> None:
    rank = os.environ.get("RANK", "")
    if not rank.isdigit() or "LOCAL_RANK" not in os.environ or _is_somebodys_worker():
        return
    _native.describe(role="rank", rank=int(rank))
    keep_own_box()
    # From here on an end without a word (`os._exit(0)`) is one in the middle of something.
    _native.begin(None, BEFORE, RUN)
    module._BaseDataLoaderIter._num_yielded = _Counted()


def _is_somebodys_worker() -> bool:
    """A DataLoader's worker inherits the rank's environment."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


class _Counted:
    """The loader's own count of batches, told each time it is raised.

    A data descriptor, because a wrapper around `__next__` would be a line in tracebacks that pass through it.
    """

    def __get__(self, loader: Any, owner: Any = None) -> Any:
        if loader is None:
            return self
        return loader.__dict__.get("_num_yielded", 0)

    def __set__(self, loader: Any, number: int) -> None:
        loader.__dict__["_num_yielded"] = number
        if number:
            _native.begin(None, f"batch {number - 1}", RUN)
