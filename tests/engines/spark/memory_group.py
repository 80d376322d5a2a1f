"""A control group with little memory, as a container has it: version 1 or 2, whichever this machine has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LITTLE = 400 << 20


@contextlib.contextmanager
def small_memory_group(name: str) -> Iterator[str | None]:
    """The file that a process writes its number into; None: no such group can be made here."""
    group = next((made for made in (_make(ROOT / "memory" / name), _make(ROOT / name)) if made), None)
    try:
        yield str(group / "cgroup.procs") if group is not None else None
    finally:
        if group is not None:
            with contextlib.suppress(OSError):  # its processes are gone with the cluster, or will be
                group.rmdir()


def _make(group: Path) -> Path | None:
    try:
        group.mkdir()
    except OSError:
        return None
    for limit in ("memory.limit_in_bytes", "memory.max"):
        with contextlib.suppress(OSError):
            (group / limit).write_text(str(LITTLE))
            # With swap it would not die, but crawl.
            for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
                with contextlib.suppress(OSError):
                    (group / swap).write_text(str(LITTLE) if "memsw" in swap else "0")
            if os.access(group / "cgroup.procs", os.W_OK):
                return group
    with contextlib.suppress(OSError):
        group.rmdir()
    return None
