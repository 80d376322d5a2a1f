"""Placement rules for schedulers, one file for each: from what the libraries need to where the job may run.

A file dropped in here is a target: it has `ABOUT`, one line, and `text(need: Need) -> str`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from lastwords.prevent.emit._need import Need, need_of
from lastwords.prevent.fleet import Host
from lastwords.prevent.scan_model import Library

__all__ = ["KINDS", "Need", "UnknownTarget", "emit", "need_of"]

KINDS: tuple[str, ...] = tuple(
    sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))
)


class UnknownTarget(ValueError):
    def __init__(self, kind: str) -> None:
        super().__init__(f"there is nothing to emit for {kind!r}: known are {', '.join(KINDS)}")


def emit(kind: str, libraries: Sequence[Library], hosts: Sequence[Host] = ()) -> str:
    """The text for one scheduler. Raises UnknownTarget."""
    if kind not in KINDS:
        raise UnknownTarget(kind)
    found = import_module(f"{__name__}.{kind}").text(need_of(libraries, hosts))
    assert isinstance(found, str)
    return found
