"""Which distribution each library of a site-packages came in, from pip's RECORD files, all read once."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path, PurePath

from lastwords.evidence.packages import Package

LARGEST_RECORD = 32 << 20
_LIBRARY = re.compile(rb'^"?([^,\n]*\.so[^,\n]*?)"?,', re.MULTILINE)
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.+\.whl")


def owner(path: str) -> Package | None:
    place = PurePath(path)
    for parent in place.parents:
        if parent.name in {"site-packages", "dist-packages"}:
            return _index(str(parent)).get(place.relative_to(parent).as_posix())
    return None


def of_wheel(path: str) -> Package | None:
    found = _WHEEL.fullmatch(os.path.basename(path))
    return Package(found["name"].replace("_", "-"), found["version"]) if found else None


@lru_cache(maxsize=64)
def _index(site: str) -> dict[str, Package]:
    try:
        names = sorted(name for name in os.listdir(site) if name.endswith(".dist-info"))
    except OSError:
        return {}
    found: dict[str, Package] = {}
    for name in names:
        package = _package(name)
        found.update((inside, package) for inside in _libraries(Path(site, name, "RECORD")))
    return found


def _package(folder: str) -> Package:
    name, _, version = folder.removesuffix(".dist-info").partition("-")
    return Package(name.replace("_", "-"), version or None)


def _libraries(record: Path) -> list[str]:
    try:
        with record.open("rb") as file:
            text = file.read(LARGEST_RECORD)
    except OSError:
        return []
    return [os.path.normpath(os.fsdecode(name)) for name in _LIBRARY.findall(text)]
