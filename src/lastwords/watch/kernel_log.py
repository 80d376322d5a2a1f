"""What the kernel log says about the processes of this job: who was killed for memory, who faulted where.

Read from /dev/kmsg without blocking, and only what has come since the run began.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

DEVICE = "/dev/kmsg"
OUTERMOST = 0xEFFFFFFC
"""The inode of the first PID namespace (PROC_PID_INIT_INO of include/linux/proc_ns.h)."""
LONGEST = 8192
MOST_LINES = 2000
# The kernel writes the pid of its own, outermost namespace. (`Killed process 12 (python)`, `task=python,pid=12,`)
_KILLED = re.compile(r"(?:Killed process (\d+)|\btask=[^,]*,pid=(\d+)\b)")
_GROUP = re.compile(r"\btask_memcg=([^,]*)")
_CONSTRAINT = re.compile(r"\boom-kill:constraint=(\w+)")
_FAULT = re.compile(
    r"(?:traps: )?\S.{0,15}\[(\d+)\]:? (segfault|trap|general protection|bad frame|bus error)\b"
)


@dataclass(frozen=True, slots=True)
class KernelLine:
    kind: str
    """`memory kill`, `segfault`, `trap` or `other`."""
    pid: int
    text: str
    constraint: str | None = None
    """For a memory kill: CONSTRAINT_MEMCG is a container's limit, CONSTRAINT_NONE the whole machine."""
    cgroup: str | None = None


class KernelLog:
    def __init__(self, device: str = DEVICE) -> None:
        self.refused: str | None = None
        """Why it cannot be read."""
        self._lines: deque[KernelLine] = deque(maxlen=MOST_LINES)
        self._descriptor: int | None = None
        if not _is_outermost():
            self.refused = "its process numbers are those of the host"
            return
        try:
            self._descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self.refused = error.strerror or "cannot be read"

    def about(self, pid: int) -> tuple[KernelLine, ...] | None:
        """None: nobody may read it here."""
        if self._descriptor is None:
            return None
        for record in self._read(self._descriptor):
            line = parse(record)
            if line is not None:
                self._lines.append(line)
        found = tuple(line for line in self._lines if line.pid == pid)
        # Told once: another process may get the number later.
        self._lines = deque((line for line in self._lines if line.pid != pid), maxlen=MOST_LINES)
        return found

    def _read(self, descriptor: int) -> Iterator[str]:
        for _ in range(MOST_LINES):
            record = self._next(descriptor)
            if record is None:
                return
            yield record

    def _next(self, descriptor: int) -> str | None:
        """None: nothing more for now."""
        try:
            return os.read(descriptor, LONGEST).decode("utf-8", "replace")
        except BlockingIOError:
            return None
        except BrokenPipeError:  # Lines were lost because we read too rarely: the next read goes on.
            return ""
        except OSError as error:
            self.close()
            self.refused = error.strerror or "cannot be read"
            return None

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def _is_outermost() -> bool:
    """Inside a container pid 17 is ours, and pid 17 of the log is somebody else's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == OUTERMOST
    except OSError:
        return False


def parse(record: str) -> KernelLine | None:
    """A record is `priority,number,microseconds,flags;text`, and more lines that we do not need."""
    head, found, rest = record.partition(";")
    text = (rest if found and head[:1].isdigit() else record).partition("\n")[0].strip()
    killed = _KILLED.search(text)
    if killed:
        group, constraint = _GROUP.search(text), _CONSTRAINT.search(text)
        return KernelLine(
            "memory kill",
            int(killed[1] or killed[2]),
            text,
            constraint[1] if constraint else None,
            group[1] if group else None,
        )
    fault = _FAULT.match(text)
    if fault:
        return KernelLine("segfault" if fault[2] == "segfault" else "trap", int(fault[1]), text)
    return None
