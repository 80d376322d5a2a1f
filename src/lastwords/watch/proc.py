"""What /proc says about a process, each answer good for a pid that may be gone the next moment."""

from __future__ import annotations

import contextlib
import os


def parent_of(pid: int) -> int | None:
    return _number(stat_fields(pid), 1)


def stat_fields(pid: int) -> list[str]:
    """What /proc/PID/stat says after the name, which may itself hold blanks and brackets. Empty: no such process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read(4096).rpartition(b")")[2].decode("ascii", "replace").split()
    return []


def _number(fields: list[str], index: int) -> int | None:
    with contextlib.suppress(IndexError, ValueError):
        return int(fields[index])
    return None


def started(pid: int) -> int | None:
    """Clock ticks since the machine began: together with the pid the name of a process that no other ever has."""
    return _number(stat_fields(pid), 19)


def is_stopped(pid: int) -> bool:
    return stat_fields(pid)[:1] == ["T"]


def is_dying(pid: int) -> bool:
    """It has begun to end, or is writing its core: the kernel has not finished with it."""
    exiting = 0x4  # PF_EXITING of include/linux/sched.h
    fields = stat_fields(pid)
    return fields[:1] in (["Z"], ["X"]) or bool((_number(fields, 6) or 0) & exiting) or _dumps_core(pid)


def _dumps_core(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        return b"CoreDumping:\t1" in file.read(8192)
    return False


def zombie_status(pid: int) -> int | None:
    """The wait status of a zombie that nobody has reaped yet: the last field of /proc/PID/stat."""
    fields = stat_fields(pid)
    return _number(fields, 49) if fields[:1] == ["Z"] else None


def group_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return None


LARGEST_TEXT = 64 << 10


def read_text(path: str) -> str:
    """A small file of /proc or /sys; empty when it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(LARGEST_TEXT).decode("utf-8", "replace")
    return ""


def read_number(path: str) -> int | None:
    """None also for `max`, which is no number."""
    with contextlib.suppress(ValueError):
        return int(read_text(path))
    return None
