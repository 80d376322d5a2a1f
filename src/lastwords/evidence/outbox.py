"""Deaths that wait to be sent to where a fleet's are collected: `HOME/outbox/<place>/`.

Whatever is put into the store goes here too while LASTWORDS_COLLECT names a place. A process of its own sends it
(sending.py): the place may be a mount that is dead, and whoever so much as looks at that hangs. What cannot be sent
waits, within bounds; the death itself is in this host's store in any case.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lastwords.evidence import places
from lastwords.evidence.model import Evidence
from lastwords.evidence.travel import packed

MOST_DEATHS = 1000
MOST_BYTES = 64 << 20
"""Of all that waits. Then the oldest goes, and is counted."""
PATIENCE = 30.0
"""Seconds after a refusal in which a new death does not try the place again."""
_ADDRESS, _REFUSED, _DROPPED = "place", "refused", "dropped"


@dataclass(frozen=True, slots=True)
class Box:
    """What waits for one place."""

    folder: Path

    @property
    def url(self) -> str:
        return _text(self.folder / _ADDRESS)

    @property
    def refused(self) -> str:
        """Why the place did not take what was sent last; empty: it did, or nobody has tried."""
        return _text(self.folder / _REFUSED)

    @property
    def dropped(self) -> int:
        """Deaths that went because there was no room for them."""
        found = _text(self.folder / _DROPPED)
        return int(found) if found.isdecimal() else 0

    def waiting(self) -> list[Path]:
        """Oldest first: their names begin with the time."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return [self.folder / name for name in sorted(filter(places.NAME.fullmatch, names))]

    def say_refused(self, why: str) -> None:
        _write(self.folder / _REFUSED, why.encode("utf-8", "replace"))

    def forget_refusal(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / _REFUSED).unlink()

    def was_just_refused(self) -> bool:
        try:
            return time.time() - (self.folder / _REFUSED).stat().st_mtime < PATIENCE
        except OSError:
            return False

    def drop(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
            _write(self.folder / _DROPPED, str(self.dropped + 1).encode())

    def forget_dropped(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / _DROPPED).unlink()


class Outbox:
    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.directory = Path(home) / "outbox"

    def add(self, url: str, evidence: Evidence) -> None:
        """Raises OSError where it cannot be written."""
        box = self._box(places.whole(url))
        _write(box.folder / places.name_of(evidence), packed(evidence))
        self._make_room()

    def boxes(self) -> list[Box]:
        try:
            names = sorted(os.listdir(self.directory))
        except OSError:
            return []
        found = [Box(self.directory / name) for name in names if (self.directory / name / _ADDRESS).is_file()]
        return [box for box in found if box.url]

    def is_empty(self) -> bool:
        return not any(box.waiting() for box in self.boxes())

    def is_worth_a_try(self) -> bool:
        return any(box.waiting() and not box.was_just_refused() for box in self.boxes())

    @contextlib.contextmanager
    def sending(self, *, patiently: bool) -> Iterator[bool]:
        """One at a time: one sender that hangs on a dead mount is enough. True: it is us."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if patiently else fcntl.LOCK_NB))
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(lock)

    def _box(self, url: str) -> Box:
        folder = self.directory / hashlib.blake2s(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / _ADDRESS).exists():
            _write(folder / _ADDRESS, os.fsencode(url))
        return Box(folder)

    def _make_room(self) -> None:
        waiting = [(path, box) for box in self.boxes() for path in box.waiting()]
        waiting.sort(key=lambda one: one[0].name, reverse=True)
        bytes_ = 0
        for number, (path, box) in enumerate(waiting, start=1):
            with contextlib.suppress(OSError):
                bytes_ += path.stat().st_size
            if number > MOST_DEATHS or bytes_ > MOST_BYTES:
                box.drop(path)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(4096)).strip()
    except OSError:
        return ""


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all; the sender may look at any moment."""
    temporary = path.with_name(f".new-{os.getpid()}-{path.name}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    os.replace(temporary, path)
