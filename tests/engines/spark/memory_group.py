"""A control group with little memory, as a container has it: version 1 or 2, whichever this machine has."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
LITTLE = 400 << 20
PATIENCE = 60.0


class Version(NamedTuple):
    place: str
    proof: str
    """A file that only a group's directory has. (Where version 1 is mounted, its parent is a tmpfs, which takes any
    directory and any file.)
    """
    limit: str
    swap: str
    without_swap: str


FIRST = Version(
    "memory", "memory.limit_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", str(LITTLE)
)
SECOND = Version("", "cgroup.controllers", "memory.max", "memory.swap.max", "0")


@contextlib.contextmanager
def small_memory_group(name: str, root: Path = ROOT) -> Iterator[str | None]:
    """The file that a process writes its number into; None: no such group can be made here."""
    made = (_make(root / version.place / name, version) for version in (FIRST, SECOND))
    group = next((one for one in made if one is not None), None)
    try:
        yield str(group / "cgroup.procs") if group is not None else None
    finally:
        if group is not None:
            _remove(group)


def _make(group: Path, version: Version) -> Path | None:
    if not (group.parent / version.proof).exists():
        return None
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        _write(group / version.limit, str(LITTLE))
        with contextlib.suppress(OSError):  # a kernel without swap; with it, what should die would crawl
            _write(group / version.swap, version.without_swap)
        if os.access(group / "cgroup.procs", os.W_OK):
            return group
    except OSError:  # the group has no memory controller
        pass
    _remove(group)
    return None


def _write(file: Path, text: str) -> None:
    """Into a file of the kernel's, never a new one."""
    with open(os.open(file, os.O_WRONLY), "w") as opened:
        opened.write(text)


def _remove(group: Path) -> None:
    """Its last processes were killed a moment ago, and are in it until they are gone."""
    until = time.monotonic() + PATIENCE
    while not _is_removed(group):
        if time.monotonic() > until:
            raise TimeoutError(f"{group} still has processes: {(group / 'cgroup.procs').read_text().split()}")
        time.sleep(0.05)


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True
