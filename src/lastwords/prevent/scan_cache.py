"""What files were found to need, kept under the home directory by build-id: a library is read once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from lastwords.prevent.scan_files import Found
from lastwords.prevent.scan_report import Scanned

VERSION = 2
"""Raised whenever the scanner would say something else of the same file."""
MOST_ENTRIES = 20_000
LARGEST_FILE = 256 << 20


class _File(msgspec.Struct, array_like=True):
    version: int
    scanned: dict[str, Scanned]
    places: dict[str, str]
    """Device, inode, size and time of a file → the key of what it was found to be, so that it need not be opened."""


class Cache:
    """`home` None: remembers nothing beyond its own life."""

    def __init__(self, home: str | os.PathLike[str] | None) -> None:
        self._path = Path(home, "scan", "libraries.msgpack") if home is not None else None
        self._file = _read(self._path)
        self._changed = False

    def get(self, found: Found) -> Scanned | None:
        key = self._file.places.get(_place(found))
        return self._file.scanned.get(key) if key else None

    def get_by_build_id(self, found: Found, build_id: str | None) -> Scanned | None:
        key = key_of(found, build_id)
        known = self._file.scanned.get(key)
        if known is not None:
            self._file.places[_place(found)] = key
            self._changed = True
        return known

    def put(self, found: Found, build_id: str | None, scanned: Scanned) -> None:
        key = key_of(found, build_id)
        self._file.scanned[key] = scanned
        self._file.places[_place(found)] = key
        self._changed = True

    def save(self) -> None:
        """Whole or not at all; two scans at once may each lose what the other found, and find it again."""
        if self._path is None or not self._changed:
            return
        for kept in (self._file.scanned, self._file.places):
            for oldest in list(kept)[: max(0, len(kept) - MOST_ENTRIES)]:
                del kept[oldest]
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
                file.write(msgspec.msgpack.encode(self._file))
            os.replace(file.name, self._path)
        except OSError:
            # A scan without a cache is only slower.
            return


def _read(path: Path | None) -> _File:
    empty = _File(VERSION, {}, {})
    if path is None:
        return empty
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE)
        kept = msgspec.msgpack.decode(data, type=_File)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return empty
    return kept if kept.version == VERSION else empty


def _place(found: Found) -> str:
    about = found.about
    return f"{about.st_dev}:{about.st_ino}:{about.st_size}:{about.st_mtime_ns}"


def key_of(found: Found, build_id: str | None) -> str:
    # auditwheel and patchelf change a file's size and keep its build-id, and its code.
    return f"{build_id}:{found.about.st_size}" if build_id else _place(found)
