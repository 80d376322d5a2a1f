"""What became of an item that was tried again alone, from whoever tried it to the death that it belongs to.

Under `lastwords run` the watcher keeps the deaths, and whoever tries again is a process of the job, which knows no ids:
it leaves a note in the run's directory, and when the job has ended each note is added to its death.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import msgspec

from lastwords.evidence.model import Evidence, TriedAlone

SUFFIX = ".alone"
LARGEST = 4096
MOST_NOTES = 1000
SAME_DEATH = 60.0
"""Seconds between the two accounts of one death: a pid is used again, but not so soon."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    time: float
    found: TriedAlone


_NOTE = msgspec.json.Decoder(Note)


def leave(directory: str, note: Note) -> None:
    """A later one about the same process takes its place. Raises OSError."""
    path = os.path.join(directory, f"{note.pid}{SUFFIX}")
    temporary = f"{path}.new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(note))
    os.replace(temporary, path)


def taken(directory: str) -> Iterator[Note]:
    """The notes that can be read, and no longer lie there: the job may have written anything."""
    try:
        names = [name for name in os.listdir(directory) if name.endswith(SUFFIX)]
    except OSError:
        return
    for name in names[:MOST_NOTES]:
        with contextlib.suppress(OSError, ValueError):
            yield _NOTE.decode(_take(os.path.join(directory, name)))


def _take(path: str) -> bytes:
    """A pipe of that name must not hold us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.unlink(path)
        return os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)


def about(note: Note, deaths: Iterable[Evidence]) -> Evidence | None:
    """The death that it speaks of."""
    of_process = [one for one in deaths if one.process is not None and one.process.pid == note.pid]
    nearest = min(of_process, key=lambda one: _apart(note, one), default=None)
    return nearest if nearest is not None and _apart(note, nearest) <= SAME_DEATH else None


def _apart(note: Note, death: Evidence) -> float:
    return abs(note.time - (death.time or 0.0))
