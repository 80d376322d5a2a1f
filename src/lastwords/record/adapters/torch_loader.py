"""torch.utils.data.DataLoader: how many workers it was given, and how much each may prepare ahead.

Noted where an iterator begins, in the base class: it returns before any worker is started, so a worker that cannot
be started has no line of ours in its traceback.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native

SETTINGS = ("num_workers", "prefetch_factor", "batch_size", "pin_memory", "persistent_workers")
_noted: set[str] = set()


def adapt(module: ModuleType) -> None:
    base = module._BaseDataLoaderIter
    init = base.__init__

    @functools.wraps(init)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        _note(loader)
        init(self, loader, *args, **kwargs)

    base.__init__ = __init__


def _note(loader: Any) -> None:
    """Once for each kind of loader: a loop over many epochs makes many iterators."""
    try:
        text = "DataLoader " + " ".join(f"{name}={getattr(loader, name, None)}" for name in SETTINGS)
        if text not in _noted and len(_noted) < 16:
            _noted.add(text)
            _native.note(text)
    except Exception:
        return
