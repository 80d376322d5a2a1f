"""What memory a process has of its own, seen from outside and from within."""

from __future__ import annotations

PAGE = 4096


def own_bytes(pid: int | str) -> int:
    """Resident and not backed by a file or shared memory; a forked worker's share of its parent's pages included."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
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
