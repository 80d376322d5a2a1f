"""torch.utils.data.DataLoader: with `lastwords run --loader`, every loader with workers survives their deaths.

The class stays torch's own; only what iterates over its workers is ours. It is imported with the first such loader: when
this is called, torch itself is half imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from lastwords.engines.contract import Engine

ENGINE = Engine("torch.utils.data.DataLoader", tested=("2.15",))
VARIABLE = "LASTWORDS_LOADER"


def adapt(module: ModuleType) -> None:
    if os.environ.get(VARIABLE) != "1":
        return
    get_iterator, load = module.DataLoader._get_iterator, ENGINE.guarded(_load)

    def _get_iterator(self: Any) -> Any:
        iterator = load() if self.num_workers > 0 else None
        return get_iterator(self) if iterator is None else iterator(self)

    module.DataLoader._get_iterator = _get_iterator


def _load() -> Callable[[Any], Any]:
    import torch

    from lastwords.torch import surviving_iterator

    ENGINE.is_tested(torch.__version__.partition("+")[0])
    return surviving_iterator
