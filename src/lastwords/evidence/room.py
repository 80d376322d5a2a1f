"""How many deaths a host keeps: a worker that dies and is replaced all night must not fill the disk.

Beyond that, the oldest of the kind with the most deaths go first: a storm of one kind does not wash out the one death of
yesterday that somebody is looking for. What went is counted, and `lastwords list` says so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lastwords.evidence import identifier

VARIABLE = "LASTWORDS_KEEP"
MOST = 2000
SHARE = 20
"""With one too many a twentieth goes at once: to choose, all of them have to be read."""
LARGEST = 16 << 20
"""Bytes of one death that are read."""
BEING_WRITTEN = 3600.0
"""Seconds for which a death that cannot be read is taken to be on its way."""
_DROPPED, _LEAVING = "dropped", ".leaving-"
_A_NUMBER = re.compile(r"[0-9]{1,12}")


class _Process(msgspec.Struct):
    command: tuple[str, ...] | None = None


class _Status(msgspec.Struct):
    signal: str | None = None
    exit_code: int | None = None


class _Kept(msgspec.Struct):
    """As much of a death as tells its kind, without a look at the rest."""

    time: float | None = None
    process: _Process | None = None
    status: _Status | None = None
    hang: msgspec.Raw | None = None

    def kind(self) -> tuple[object, ...]:
        status, process = self.status or _Status(), self.process or _Process()
        return status.signal, status.exit_code, self.hang is not None, process.command


_KEPT = msgspec.json.Decoder(_Kept)


def most() -> int:
    """How many are kept; 0: all of them."""
    chosen = os.environ.get(VARIABLE, "")
    return int(chosen) if _A_NUMBER.fullmatch(chosen) else MOST


def dropped(directory: Path) -> int:
    """How many deaths went for want of room."""
    try:
        return _number((directory / _DROPPED).read_bytes())
    except OSError:
        return 0


def make_room(directory: Path) -> None:
    """Never raises: a death that has been kept is kept, whatever becomes of the others."""
    bound = most()
    with contextlib.suppress(OSError):
        if bound and len(names_in(directory)) > bound:
            with _alone(directory / _DROPPED) as counter:
                # Again: whoever was here before may have made room.
                names = names_in(directory)
                if len(names) > bound:
                    _drop(directory, names, len(names) - bound + bound // SHARE, counter)


def names_in(directory: Path) -> list[str]:
    """The ids of all that are kept. Raises OSError."""
    return list(filter(identifier.PATTERN.fullmatch, os.listdir(directory)))


def _drop(directory: Path, names: list[str], many: int, counter: int) -> None:
    gone = 0
    for name in _oldest_of_the_most_frequent(directory, names, many):
        # A reader sees it whole or not at all.
        with contextlib.suppress(OSError):
            os.rename(directory / name, directory / (_LEAVING + name))
            gone += 1
    for left in directory.glob(_LEAVING + "*"):
        shutil.rmtree(left, ignore_errors=True)
    total = _number(os.pread(counter, 32, 0)) + gone
    os.ftruncate(counter, 0)
    os.pwrite(counter, str(total).encode(), 0)


def _oldest_of_the_most_frequent(directory: Path, names: list[str], many: int) -> Iterator[str]:
    kinds: dict[object, list[tuple[float, str]]] = {}
    for name in names:
        if (found := _look_at(directory / name)) is not None:
            kind, when = found
            kinds.setdefault(kind, []).append((when, name))
    # Of kinds with as many, that with the oldest: names are unique, so that queues are never compared.
    heap = [(-len(every), min(every), deque(sorted(every))) for every in kinds.values()]
    heapq.heapify(heap)
    for _ in range(many):
        if not heap:
            return
        count, (_, name), queue = heap[0]
        yield name
        queue.popleft()
        if queue:
            heapq.heapreplace(heap, (count + 1, queue[0], queue))
        else:
            heapq.heappop(heap)


def _look_at(place: Path) -> tuple[object, float] | None:
    """Its kind and time; None: it is on its way, or was just taken away."""
    try:
        with (place / "evidence.json").open("rb") as file:
            found = _KEPT.decode(file.read(LARGEST))
        return found.kind(), place.stat().st_mtime if found.time is None else found.time
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            is_young = time.time() - place.stat().st_mtime < BEING_WRITTEN
            return None if is_young else ("unreadable", 0.0)
    return None


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Whoever comes second has nothing to do: the first makes room for both. Raises OSError then."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as refused:
            # A network file system without locks: two may drop a few more than one would have.
            if refused.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        yield descriptor
    finally:
        os.close(descriptor)


def _number(text: bytes) -> int:
    return int(text) if _A_NUMBER.fullmatch(text.decode("ascii", "replace")) else 0
