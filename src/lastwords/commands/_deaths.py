"""Finding deaths again, with the errors a user should see."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lastwords.commands import _problems as problems
from lastwords.diagnosis.explain import from_file
from lastwords.evidence import Evidence, UnreadableBox
from lastwords.evidence import store as deaths
from lastwords.evidence.core import UnreadableCore
from lastwords.evidence.text import from_stream


def find(home: Path, death: str) -> Evidence:
    try:
        return deaths.Store(home).get(death)
    except deaths.NoSuchDeath:
        raise problems.NoSuchDeath(death) from None
    except deaths.AmbiguousId as error:
        raise problems.AmbiguousId(death, error.ids) from None


def read(home: Path, target: str) -> Evidence:
    """TARGET is `-`, a death's id, or the path of a box, a core or a log; a file of that name comes first."""
    if target == "-":
        return from_stream(sys.stdin.buffer, name="standard input")
    if not os.path.lexists(target):
        return find(home, target)
    try:
        return from_file(target)
    except UnreadableBox as error:
        if isinstance(error.__cause__, OSError):
            raise problems.CannotRead(target, error.reason) from None
        raise problems.NotABox(target, error.reason) from None
    except UnreadableCore as error:
        raise problems.CannotRead(target, error.reason) from None
    except OSError as error:
        raise problems.CannotRead(target, error.strerror or "cannot be read") from None


def export_minidump(home: Path, death: str, file: Path) -> None:
    """Writes the crash that a death's box holds. For its owner alone, like the box itself: it is memory."""
    from lastwords import _native

    evidence = find(home, death)
    box = deaths.Store(home).box_of(evidence.id)
    dump = _native.minidump_box(box) if box is not None else None
    if dump is None:
        raise problems.NoCrashInIt(evidence.id)
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            opened.write(dump)
    except OSError as error:
        raise problems.CannotWrite(str(file), error.strerror or "cannot be written") from None
