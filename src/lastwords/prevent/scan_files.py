"""Finds the libraries under a path: a file, a directory, a wheel, a container's root. Nothing follows a link twice."""

from __future__ import annotations

import os
import re
import stat
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

LARGEST_MEMBER = 8 << 30
_LIBRARY = re.compile(r".+\.so(\.\w+)*", re.DOTALL)
_ARCHIVES = (".whl", ".zip")
# A running system's own: neither files nor ends.
_NOT_FILES = {"/proc", "/sys", "/dev"}

Problem = Callable[[str, str], None]
"""Called with a path and one line."""


class Found(NamedTuple):
    path: str
    about: os.stat_result


class Member(NamedTuple):
    """A library inside a wheel."""

    wheel: str
    name: str
    data: bytes


def default_places() -> list[str]:
    """This environment's site-packages."""
    places = dict.fromkeys(sysconfig.get_path(name) for name in ("platlib", "purelib"))
    return [place for place in places if os.path.isdir(place)]


def libraries(paths: list[str], problem: Problem) -> Iterator[Found]:
    """Files under the paths, each once, wheels left out."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for found in _under(path, problem):
            key = (found.about.st_dev, found.about.st_ino)
            if key not in seen:
                seen.add(key)
                yield found


def is_wheel(path: str) -> bool:
    return path.lower().endswith(_ARCHIVES) and not os.path.isdir(path)


def _under(path: str, problem: Problem) -> Iterator[Found]:
    try:
        about = os.stat(path)
    except OSError as error:
        problem(path, error.strerror or "cannot be read")
        return
    if stat.S_ISDIR(about.st_mode):
        yield from _walk(path, problem)
    elif stat.S_ISREG(about.st_mode):
        yield Found(path, about)
    else:
        problem(path, "neither a file nor a directory")


def _walk(top: str, problem: Problem) -> Iterator[Found]:
    # No link is followed on the way down: where the top really is, the rest is, too.
    waiting, really = [top], os.path.realpath(top)
    while waiting:
        folder = waiting.pop()
        if (really + folder[len(top) :]).replace("//", "/") in _NOT_FILES:
            continue
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            problem(folder, error.strerror or "cannot be read")
            continue
        # Links to directories are not followed: that ends every loop, and what they lead to is seen where it lies.
        waiting += [entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]
        for entry in entries:
            yield from _candidate(entry)


def _candidate(entry: os.DirEntry[str]) -> Iterator[Found]:
    if not _LIBRARY.fullmatch(entry.name):
        return
    try:
        if entry.is_file():
            yield Found(entry.path, entry.stat())
    except OSError:
        # A link that leads nowhere, or round in a circle: no library for anybody.
        return


def members(wheel: str, problem: Problem) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if _LIBRARY.fullmatch(info.filename) and not info.is_dir():
                    yield from _member(archive, info, wheel, problem)
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        problem(wheel, f"not a wheel: {_reason(error)}")


def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, wheel: str, problem: Problem
) -> Iterator[Member]:
    if info.file_size > LARGEST_MEMBER:
        problem(f"{wheel}/{info.filename}", "too large to unpack in memory")
        return
    try:
        yield Member(wheel, info.filename, archive.read(info))
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        problem(f"{wheel}/{info.filename}", f"cannot be unpacked: {_reason(error)}")
    except Exception as error:
        # zlib, lzma and bz2 each raise their own class for damaged data, and share no base with the others.
        if type(error).__module__ not in {"zlib", "_lzma", "_bz2"}:
            raise
        problem(f"{wheel}/{info.filename}", f"cannot be unpacked: {_reason(error)}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
