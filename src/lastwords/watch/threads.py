"""The threads of a living process, looked at from outside, before anybody disturbs them.

The probe of the recorder interrupts the thread that it asks first: what that one was blocked in, only somebody
outside can say, and only before.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from lastwords.watch import descriptors

MOST_THREADS = 256
MOST_DESCRIPTORS = 1 << 20
"""A first argument above this is an address."""


@dataclass(frozen=True, slots=True)
class Thread:
    tid: int
    state: str | None = None
    """The letter of /proc/PID/stat: R runs, S sleeps, D sleeps uninterruptibly, T is stopped."""
    syscall: int | None = None
    """The number of the system call that it is blocked in; None: in none, or nobody may know."""
    wait_channel: str | None = None
    """Where in the kernel it sleeps."""
    first_descriptor: str | None = None
    """What the first argument of that call would be, taken for a descriptor. Whether it is one, the call decides."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Nanoseconds, of all threads together."""

    taken_ns: int
    """When this was read, on the monotonic clock."""
    ran_ns: int
    waited_ns: int
    """Ready to run, and no CPU was free."""


def look(pid: int) -> tuple[Thread, ...]:
    """All threads of a process, the main one first. Empty: it is gone, or hidden from us."""
    return tuple(_thread(pid, tid) for tid in _tids(pid))


def cpu_time(pid: int, now_ns: int) -> CpuTime | None:
    times = [found for tid in _tids(pid) if (found := _schedule(pid, tid)) is not None]
    if not times:
        return None
    return CpuTime(now_ns, sum(ran for ran, _ in times), sum(waited for _, waited in times))


def _tids(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task") if name.isdigit())[:MOST_THREADS]
    return []


def _thread(pid: int, tid: int) -> Thread:
    call = _read(pid, tid, "syscall").split()
    state = _read(pid, tid, "stat").rpartition(")")[2].split()
    channel = _read(pid, tid, "wchan").strip()
    # `running`, or -1 for a thread that is blocked outside of any system call (a page fault).
    number = int(call[0]) if call and call[0].isdecimal() else None
    return Thread(
        tid,
        state[0] if state else None,
        number,
        channel if channel not in ("", "0") else None,
        _first_descriptor(pid, call[1]) if number is not None and len(call) > 1 else None,
    )


def _first_descriptor(pid: int, argument: str) -> str | None:
    with contextlib.suppress(ValueError):
        value = int(argument, 16)
        return descriptors.name_of(pid, value) if value < MOST_DESCRIPTORS else None
    return None


def _schedule(pid: int, tid: int) -> tuple[int, int] | None:
    words = _read(pid, tid, "schedstat").split()
    with contextlib.suppress(IndexError, ValueError):
        return int(words[0]), int(words[1])
    return None


def _read(pid: int, tid: int, name: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/{name}", "rb") as file:
        return file.read(4096).decode("utf-8", "replace")
    return ""
