"""torch.utils.data: the index that a DataLoader worker fetches is its item.

The fetcher is made in the worker, after torch has set the worker's info. The user's dataset stays what it is.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception
from lastwords.record.items import note_called


def adapt(module: ModuleType) -> None:
    mapped: Any = module._MapDatasetFetcher
    mapped.fetch = _native.MarkedFetch(mapped.fetch, record_exception)
    _after_init(mapped, _mark_map)
    _after_init(module._IterableDatasetFetcher, _mark_iterable)


def _after_init(kind: Any, mark: Any) -> None:
    init = kind.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _describe_worker()
        mark(self)

    kind.__init__ = __init__


def _describe_worker() -> None:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    info = getattr(worker, "_worker_info", None)
    if info is not None:
        _native.describe(role="DataLoader worker", worker=info.id)


def _mark_map(fetcher: Any) -> None:
    note_called(getattr(type(fetcher.dataset), "__getitem__", None))
    fetcher.collate_fn = _native.MarkedCollate(fetcher.collate_fn, record_exception)


def _mark_iterable(fetcher: Any) -> None:
    note_called(getattr(type(fetcher.dataset), "__iter__", None))
    fetcher.dataset_iter = _native.MarkedIterator(fetcher.dataset_iter, record_exception)
