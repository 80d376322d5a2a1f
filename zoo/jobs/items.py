"""What all jobs of the zoo have in common: 32 items, of which number 5 kills whoever works on it."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from typing import Any

ITEMS = 32
DEADLY = 5


@cache
def death() -> Any:
    """The module that the job was started with: `job.py PATH/death.py`."""
    path = os.environ.get("ZOO_DEATH") or sys.argv[1]
    os.environ["ZOO_DEATH"] = path  # a spawned worker has other arguments
    spec = importlib.util.spec_from_file_location("death", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["death"] = module  # what is pickled is looked up by that name
    spec.loader.exec_module(module)
    return module


def work(item: int) -> Any:
    if item == DEADLY:
        left = death().die(item)
        return item * item if left is None else left
    return item * item
