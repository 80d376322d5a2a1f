"""What memory a process has of its own, seen from outside and from within."""

from __future__ import annotations

import os

PAGE = 4096


def own_bytes(pid: int | str) -> int:
    """Resident and not backed by a file or shared memory; a forked worker's share of its parent's pages included."""
    try:
        # Not `open`: its buffers would be the first memory of its own that an idle worker has.
        descriptor = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _, resident, shared, *_ = map(int, os.read(descriptor, 256).split())
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return 0
    return (resident - shared) * PAGE


def private_bytes(pid: int | str) -> int:
    """Pages that nobody else has."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = [line.split() for line in file if line.startswith(b"Private_")]
    except OSError:
        return own_bytes(pid)
    return sum(int(line[1]) for line in lines) << 10


def page_faults() -> int:
    """Of this process so far, those that no disk was needed for."""
    from resource import RUSAGE_SELF, getrusage  # not in a worker that nobody weighs

    return getrusage(RUSAGE_SELF).ru_minflt
