"""Finding deaths again, with the errors a user should see."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lastwords.commands import _problems as problems
from lastwords.diagnosis.explain import from_file
from lastwords.evidence import Evidence, UnreadableBox, places, room
from lastwords.evidence import store as deaths
from lastwords.evidence.core import UnreadableCore
from lastwords.evidence.text import UnreadableLog, from_stream


def find(home: Path, death: str) -> Evidence:
    store = deaths.Store(home)
    try:
        return store.get(death)
    except deaths.NoSuchDeath:
        raise problems.NoSuchDeath(death, store.dropped) from None
    except deaths.AmbiguousId as error:
        raise problems.AmbiguousId(death, error.ids) from None


def find_in(url: str, death: str) -> Evidence:
    """Where the deaths of many hosts are collected."""
    from lastwords.evidence.gathered import Gathered

    with _reachable(url):
        try:
            return Gathered(places.open_place(url)).get(death)
        except deaths.NoSuchDeath:
            raise problems.NoSuchDeathThere(death, url) from None
        except deaths.AmbiguousId as error:
            raise problems.AmbiguousId(death, error.ids) from None


def every(home: Path, url: str | None) -> tuple[Sequence[Evidence], Sequence[str]]:
    """Newest first, and what was skipped: of this host, or of all that send their deaths to one place."""
    from lastwords.evidence import unwatched
    from lastwords.evidence.gathered import Gathered

    if url is None:
        unwatched.take_up(home)
        store = deaths.Store(home)
        return store.all(), [*store.notes, *_dropped(store.dropped)]
    with _reachable(url):
        gathered = Gathered(places.open_place(url))
        return gathered.all(), gathered.notes


def _dropped(many: int) -> list[str]:
    if not many:
        return []
    were = "1 older death was" if many == 1 else f"{many:,} older deaths were"
    kept = f"{room.VARIABLE}=N keeps N, {room.MOST:,} if nothing is said; 0 keeps all"
    return [f"{were} removed to make room, of the most frequent kind the oldest first ({kept})"]


@contextlib.contextmanager
def _reachable(url: str) -> Iterator[None]:
    try:
        yield
    except places.PlaceAway as away:
        raise problems.PlaceAway(url, str(away), away.then) from None


def read(home: Path, target: str) -> Evidence:
    """TARGET is `-`, a death's id, or the path of a box, a core or a log; a file of that name comes first."""
    if not os.path.lexists(target) and target != "-":
        if os.sep in target or "." in target:
            raise problems.NoSuchFile(target)
        return find(home, target)
    if os.path.isdir(target):
        raise problems.IsADirectory(target)
    try:
        return from_stream(sys.stdin.buffer, name="standard input") if target == "-" else from_file(target)
    except UnreadableBox as error:
        if isinstance(error.__cause__, OSError):
            raise problems.CannotRead(target, error.reason) from None
        raise problems.NotABox(target, error.reason) from None
    except UnreadableCore as error:
        raise problems.CannotRead(target, error.reason) from None
    except UnreadableLog as error:
        raise problems.CannotRead(target, error.reason, error.then) from None
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
