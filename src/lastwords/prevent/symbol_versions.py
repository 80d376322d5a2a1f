"""Which versions of the C and C++ runtimes a library asks the loader for: its .gnu.version_r section.

Read with a handful of small reads, so that a whole environment takes a moment. The files are anybody's: every number in
them is checked before it is used, and what makes no sense asks for nothing.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator

Version = tuple[int, ...]

_HEADER = struct.Struct("<16s24xQ10xHHH")
_ENTRY = struct.Struct("<IIQ8xQQII16x")
_NEED = struct.Struct("<HHIII")
_NEED_PART = struct.Struct("<4xHHII")
_NEEDED = 0x6FFFFFFE
"""SHT_GNU_verneed."""
_LARGEST_TABLE, _LARGEST_NAMES, _MOST_ENTRIES = 1 << 20, 16 << 20, 4096
_NAME = re.compile(rb"(GLIBC|GLIBCXX)_(\d+(?:\.\d+){1,2})\Z")
_LIBRARY = re.compile(r"\.so(\.\d+)*$")


def needed_by(path: str) -> dict[str, Version]:
    """The newest `GLIBC` and `GLIBCXX` that the library asks for. Empty: none, or it is no library of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    newest: dict[str, Version] = {}
    try:
        for name in _names(descriptor):
            found = _NAME.match(name)
            if found:
                kind, version = found[1].decode(), tuple(int(part) for part in found[2].split(b"."))
                newest[kind] = max(newest.get(kind, ()), version)
    except (OSError, OverflowError, struct.error, IndexError):
        return newest
    finally:
        os.close(descriptor)
    return newest


def _names(descriptor: int) -> Iterator[bytes]:
    magic, at, size, count, _ = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
    if magic[:6] != b"\x7fELF\x02\x01" or size != _ENTRY.size or count > _MOST_ENTRIES:
        return
    sections = list(_ENTRY.iter_unpack(os.pread(descriptor, size * count, at)))
    for _, kind, _, begin, length, link, _ in sections:
        if kind == _NEEDED:
            table = os.pread(descriptor, min(length, _LARGEST_TABLE), begin)
            _, _, _, names_at, names_length, _, _ = sections[link]
            yield from _versions(table, os.pread(descriptor, min(names_length, _LARGEST_NAMES), names_at))


def _versions(table: bytes, names: bytes) -> Iterator[bytes]:
    """A chain of needed libraries, each with a chain of versions. A chain that is too long goes in a circle."""
    at = 0
    for _ in range(_MOST_ENTRIES):
        _, parts, _, first, after = _NEED.unpack_from(table, at)
        part_at = at + first
        for _ in range(min(parts, _MOST_ENTRIES)):
            _, _, name, next_part = _NEED_PART.unpack_from(table, part_at)
            yield names[name : names.find(b"\0", name)]
            part_at += next_part
        if not after:
            return
        at += after


def libraries_in(places: Iterable[str], most: int = 20_000) -> Iterator[str]:
    """Shared libraries below some directories."""
    found = 0
    for place in places:
        for directory, _, files in os.walk(place):
            for name in files:
                if _LIBRARY.search(name):
                    yield os.path.join(directory, name)
                    found += 1
                    if found >= most:
                        return


def words(version: Version) -> str:
    return ".".join(map(str, version))
