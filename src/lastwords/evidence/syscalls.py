"""System calls of Linux by number. The knowledge is data, in `syscalls.json`: those that a program can wait in, or that a sandbox may forbid."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

ON_A_DESCRIPTOR = frozenset(
    {
        "accept",
        "accept4",
        "close",
        "connect",
        "fallocate",
        "fcntl",
        "fdatasync",
        "flock",
        "fstat",
        "fsync",
        "ftruncate",
        "getdents64",
        "ioctl",
        "lseek",
        "pread64",
        "preadv",
        "pwrite64",
        "pwritev",
        "read",
        "readv",
        "recvfrom",
        "recvmsg",
        "sendmsg",
        "sendto",
        "sync_file_range",
        "syncfs",
        "write",
        "writev",
    }
)
"""Calls whose first argument is the descriptor that they wait for."""
ON_A_PATH = {
    **dict.fromkeys(("access", "execve", "lstat", "mkdir", "open", "rename", "rmdir", "stat", "unlink"), 0),
    **dict.fromkeys(
        (
            "faccessat",
            "faccessat2",
            "mkdirat",
            "newfstatat",
            "openat",
            "openat2",
            "renameat",
            "renameat2",
            "statx",
            "unlinkat",
        ),
        1,
    ),
}
"""Calls that wait for a path, and which of their arguments it is. Before it comes the directory that it starts from."""


@cache
def _table() -> dict[str, dict[str, str]]:
    raw = Path(__file__).with_name("syscalls.json").read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, str]])


def name_of(number: int, architecture: str = "x86_64") -> str:
    return _table().get(architecture, {}).get(str(number), f"system call {number}")
