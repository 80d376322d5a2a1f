"""Finding deaths again, with the errors a user should see."""

from __future__ import annotations

import os
from pathlib import Path

from lastwords.commands import _problems as problems
from lastwords.evidence import Evidence, UnreadableBox, from_box
from lastwords.evidence import store as deaths


def find(home: Path, death: str) -> Evidence:
    try:
        return deaths.Store(home).get(death)
    except deaths.NoSuchDeath:
        raise problems.NoSuchDeath(death) from None
    except deaths.AmbiguousId as error:
        raise problems.AmbiguousId(death, error.ids) from None


def read(home: Path, target: str) -> Evidence:
    """TARGET is a death's id or the path of a box; a file of that name comes first."""
    if target == "-":
        raise problems.NoLogsYet
    if not os.path.lexists(target):
        return find(home, target)
    try:
        return from_box(target)
    except UnreadableBox as error:
        if isinstance(error.__cause__, OSError):
            raise problems.CannotRead(target, error.reason) from None
        raise problems.NotABox(target, error.reason) from None
