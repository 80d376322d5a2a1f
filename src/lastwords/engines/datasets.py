"""Hugging Face datasets with `num_proc`: the RuntimeError says why the subprocess died, and on which rows.

lastwords run -- python prepare.py
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords.engines import notes
from lastwords.engines.contract import Engine
from lastwords.engines.multiprocessing_pool import last_accounts

ENGINE = Engine("Hugging Face datasets", tested=("5.2",))
DIED = "abruptly died"


def adapt(module: ModuleType) -> None:
    flatten: Any = module.iflatmap_unordered
    explain = ENGINE.guarded(_explain)

    @functools.wraps(flatten)
    def iflatmap_unordered(pool: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            yield from flatten(pool, *args, **kwargs)
        except RuntimeError as error:
            if DIED in str(error):
                explain(error)
            raise

    module.iflatmap_unordered = iflatmap_unordered  # type: ignore[attr-defined]


def _explain(error: RuntimeError) -> None:
    """By then the pool has joined the dead one, and the adapter of pools has looked at it."""
    for text in last_accounts():
        notes.add(error, text)
