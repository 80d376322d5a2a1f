"""The threads of a living process, looked at from outside, before anybody disturbs them.

The probe of the recorder interrupts the thread that it asks first: what that one was blocked in, only somebody
outside can say, and only before.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace

from lastwords.watch import cgroups, descriptors

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
    arguments: tuple[int, ...] = ()
    """The first two of that call, as they are."""
    is_in_page_fault: bool = False
    """It sleeps, and not in a system call: for a page of its memory."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Nanoseconds, of all threads together."""

    taken_ns: int
    """When this was read, on the monotonic clock."""
    ran_ns: int
    waited_ns: int
    """Ready to run, and no CPU was free, or its group was not let run."""
    throttling: cgroups.Throttling | None = None
    """Of its group, which it may have been moved to since it began."""


def look(pid: int) -> tuple[Thread, ...]:
    """All threads of a process, the main one first. Empty: it is gone, or hidden from us."""
    return tuple(_thread(pid, tid) for tid in _tids(pid))


def cpu_use(pid: int, now_ns: int) -> CpuTime | None:
    """With what its group was not let use, of which the next look is the other end."""
    found = cpu_time(pid, now_ns)
    return replace(found, throttling=cgroups.throttling_of(pid)) if found is not None else None


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
    # `running`, or -1 for a thread that is blocked outside of any system call.
    number = int(call[0]) if call and call[0].isdecimal() else None
    return Thread(
        tid,
        state[0] if state else None,
        number,
        channel if channel not in ("", "0") else None,
        _first_descriptor(pid, call[1]) if number is not None and len(call) > 1 else None,
        _arguments(call[1:3]) if number is not None else (),
        call[:1] == ["-1"],
    )


def _arguments(words: list[str]) -> tuple[int, ...]:
    with contextlib.suppress(ValueError):
        return tuple(int(word, 16) for word in words)
    return ()


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
