"""The processes of a run that announced themselves, and how they are related."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from lastwords.watch.announcements import Announcement
from lastwords.watch.proc import group_of, parent_of, started

# Deeper than any job; a bound against pids that are reused while we climb.
MOST_ANCESTORS = 64


@dataclass(eq=False, slots=True)
class Process:
    pid: int
    own_pid: int
    """The pid inside its own PID namespace, which is what other processes of the job call it."""
    pidfd: int | None = None
    box: str | None = None
    ancestors: tuple[int, ...] = ()
    """Its parent first, as they were when it began: an orphan's parent changes."""
    announced: float = field(default_factory=time.time)
    group: int | None = None
    """Its process group, for signals that are sent to whole groups."""
    started: int | None = None
    """Clock ticks since the machine began; None: it was gone when it was first looked at."""

    @property
    def parent(self) -> int | None:
        return self.ancestors[0] if self.ancestors else None

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class Processes:
    """Living ones by pid. A pid has one process at a time: an ended one leaves before its pid is used again."""

    def __init__(self, watcher: int) -> None:
        self._watcher = watcher
        self._living: dict[int, Process] = {}
        self._ancestors: dict[int, tuple[int, ...]] = {}
        """Of all that were ever seen: the parent may be gone before its child is heard of."""

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._living.values()))

    def __len__(self) -> int:
        return len(self._living)

    def get(self, pid: int) -> Process | None:
        return self._living.get(pid)

    def add(self, said: Announcement, box: str | None) -> tuple[Process, Process | None]:
        """The new process, and the one that it replaces: the same process after an exec of Python by Python."""
        process = Process(
            pid=said.pid,
            own_pid=said.own_pid,
            pidfd=said.pidfd,
            box=box,
            ancestors=self._climb(said.pid),
            group=group_of(said.pid),
            started=started(said.pid),
        )
        replaced = self._living.get(said.pid)
        self._living[said.pid] = process
        self._ancestors[said.pid] = process.ancestors
        return process, replaced

    def remove(self, process: Process) -> None:
        if self._living.get(process.pid) is process:
            del self._living[process.pid]
        process.close()

    def place_below(self, process: Process, parent: int) -> None:
        """For a process that was gone from /proc before we looked: its box remembers its parent."""
        if not process.ancestors and parent != self._watcher:
            process.ancestors = (parent, *self._ancestors.get(parent, ()))
            self._ancestors[process.pid] = process.ancestors

    def _climb(self, pid: int) -> tuple[int, ...]:
        """Up to the watcher. A parent that announced itself knows its own ancestors."""
        found: list[int] = []
        while len(found) < MOST_ANCESTORS:
            parent = parent_of(pid)
            if parent is None or parent in (0, self._watcher):
                break
            found.append(parent)
            if parent in self._ancestors:
                found.extend(self._ancestors[parent])
                break
            pid = parent
        return tuple(found)
