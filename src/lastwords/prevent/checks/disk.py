"""Space and inodes where a job writes: its directory, the temporary directory, and our own home."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent import sizes
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient

LITTLE = 1 << 30
FEW_FILES = 10_000
FULL = 0.02


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    free: int
    total: int
    free_files: int | None
    writable: bool


def measure(patient: Patient) -> tuple[Place, ...]:
    paths = dict.fromkeys((patient.directory, tempfile.gettempdir(), _existing(patient.home)))
    return tuple(place for place in map(_place, paths) if place is not None)


def _existing(path: str) -> str:
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _place(path: str) -> Place | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    files = found.f_favail if found.f_files else None
    return Place(
        path,
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
        files,
        os.access(path, os.W_OK),
    )


def judge(found: tuple[Place, ...], job: Job) -> Iterator[Finding]:
    del job
    bad = [finding for place in found for finding in _judge(place)]
    yield from bad
    if not bad and found:
        least = min(found, key=lambda place: place.free)
        yield fine(
            f"{sizes.words(least.free)} of disk free",
            *(f"{place.path}: {sizes.words(place.free)} free (statvfs)" for place in found),
        )


def _judge(place: Place) -> Iterator[Finding]:
    files = place.free_files if place.free_files is not None else "any number of"
    space = f"{place.path}: {sizes.words(place.free)} free of {sizes.words(place.total)}"
    measured = (f"{space}, {files} more files (statvfs)",)
    look = Fix("see what takes it", f"du -xh --max-depth=1 {place.path} | sort -h | tail")
    if not place.writable:
        yield Finding(
            severity="risk",
            says=f"{place.path} cannot be written",
            measured=measured,
            facts={"path": place.path},
        )
    if place.free == 0 and place.total:
        yield Finding(
            severity="kills", says=f"the disk of {place.path} is full", measured=measured, fixes=(look,)
        )
    elif place.total and (place.free < LITTLE or place.free < place.total * FULL):
        says = f"{sizes.words(place.free)} are left on the disk of {place.path}"
        yield Finding(severity="risk", says=says, measured=measured, fixes=(look,))
    if place.free_files is not None and place.free_files < FEW_FILES:
        says = f"{place.free_files} more files fit on the disk of {place.path}: it runs out of inodes, not of space"
        yield Finding(
            severity="risk" if place.free_files else "kills", says=says, measured=measured, fixes=(look,)
        )


CHECK = Check("disk", "disk", measure, judge)
