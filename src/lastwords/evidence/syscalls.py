"""System calls of Linux by number. The knowledge is data, in `syscalls.json`: those that a program can wait in, or that a sandbox may forbid."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

ON_A_DESCRIPTOR = frozenset(
    {
        "accept",
        "accept4",
        "connect",
        "fdatasync",
        "flock",
        "fsync",
        "getdents64",
        "ioctl",
        "pread64",
        "pwrite64",
        "read",
        "readv",
        "recvfrom",
        "recvmsg",
        "sendmsg",
        "sendto",
        "write",
        "writev",
    }
)
"""Calls whose first argument is the descriptor that they wait for."""


@cache
def _table() -> dict[str, dict[str, str]]:
    raw = Path(__file__).with_name("syscalls.json").read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, str]])


def name_of(number: int, architecture: str = "x86_64") -> str:
    return _table().get(architecture, {}).get(str(number), f"system call {number}")
