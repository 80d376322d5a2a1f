"""For benchmarks of engines: takes our adapters out of the path, and puts them back, in a process that runs on.

Two clusters, or two JVMs, differ from each other by more than what an adapter costs; one and the same does not.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

_OURS: dict[str, Callable[..., object]] = {}


def switch(places: list[str], with_us: bool) -> int:
    """`module:Class.name` of functions that an adapter stands in front of. Returns this process's pid."""
    for place in places:
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        owner = importlib.import_module(module)
        for one in owners:
            owner = getattr(owner, one)
        ours = _OURS.setdefault(place, getattr(owner, name))
        setattr(owner, name, ours if with_us else ours.__wrapped__)  # type: ignore[attr-defined]
    return os.getpid()
