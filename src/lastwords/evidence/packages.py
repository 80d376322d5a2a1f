"""Which installed distribution a shared library belongs to, from the files pip left; nothing is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple

LARGEST_RECORD = 32 << 20
_SITE = ("site-packages", "dist-packages")


class Package(NamedTuple):
    name: str
    version: str | None


@lru_cache(maxsize=4096)
def owner(path: str) -> Package | None:
    """The distribution whose RECORD lists `path`, else None."""
    try:
        return _owner(PurePath(path))
    except (OSError, ValueError):
        return None


def _owner(path: PurePath) -> Package | None:
    site = next((parent for parent in path.parents if parent.name in _SITE), None)
    if site is None:
        return None
    inside = path.relative_to(site)
    for folder in sorted(_dist_infos(str(site)), key=lambda folder: not _looks_like(folder, inside)):
        if _lists(Path(site, folder, "RECORD"), inside.as_posix()):
            return _package(Path(site, folder))
    return None


@lru_cache(maxsize=64)
def _dist_infos(site: str) -> tuple[str, ...]:
    return tuple(sorted(name for name in os.listdir(site) if name.endswith(".dist-info")))


def _looks_like(folder: str, inside: PurePath) -> bool:
    """Tried first: `faiss_cpu-1.9.0.dist-info` for `faiss_cpu.libs/libgomp.so` or `faiss/_swigfaiss.so`."""
    top = _normal(inside.parts[0].removesuffix(".libs"))
    return _normal(folder.split("-", 1)[0]).startswith(top)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _lists(record: Path, inside: str) -> bool:
    try:
        with record.open("rb") as file:
            text = file.read(LARGEST_RECORD)
    except OSError:
        return False
    start = f"{inside},".encode()
    return text.startswith(start) or b"\n" + start in text


def _package(folder: Path) -> Package:
    name, _, version = folder.name.removesuffix(".dist-info").partition("-")
    fields = dict(_headers(folder / "METADATA"))
    return Package(fields.get("Name", name), fields.get("Version", version) or None)


def _headers(metadata: Path) -> Iterator[tuple[str, str]]:
    try:
        with metadata.open("rb") as file:
            text = file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.split("\n\n", 1)[0].splitlines():
        name, colon, value = line.partition(": ")
        if colon and not name.startswith(" "):
            yield name, value.strip()
