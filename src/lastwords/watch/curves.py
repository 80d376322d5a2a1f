"""What is asked of each process again and again while it lives: a native thread does it, this only begins and ends."""

from __future__ import annotations

from dataclasses import dataclass

from lastwords import _native
from lastwords.watch.processes import Process

Points = tuple[tuple[int, int, int], ...]
"""Monotonic nanoseconds, resident KiB, swapped KiB; oldest first."""
Looks = tuple[tuple[int, int | None, int | None, int | None, int | None], ...]
"""Monotonic nanoseconds, descriptors, threads, proportional and private KiB; None: not asked then. Oldest first."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a process by having looked at it often."""

    memory: Points = ()
    descriptors: int | None = None
    threads: int | None = None
    looks: Looks = ()
    ended_ns: int | None = None
    """When it ended, noted by a thread that has nothing else to do."""
    moved_to: tuple[tuple[str, int, int], ...] | None = None
    """Memory groups that it was put into after it had begun, with the kills counted there until then."""


class Curves:
    def __init__(self) -> None:
        self._sampler: _native.MemorySampler | None = None
        self._is_refused = False

    def begin(self, process: Process) -> None:
        sampler = self._started()
        if sampler is not None:
            sampler.add(process.pid, process.pidfd)

    @property
    def bell(self) -> int | None:
        """A descriptor that is readable when `alarms` has something."""
        return self._sampler.bell() if self._sampler is not None else None

    def alarms(self) -> list[int]:
        """Pids of processes that are about to reach their memory limit."""
        return self._sampler.alarms() if self._sampler is not None else []

    def so_far(self, pid: int) -> Points:
        return tuple(self._sampler.points(pid)) if self._sampler is not None else ()

    def end(self, pid: int) -> Seen:
        sampler = self._sampler
        if sampler is None:
            return Seen()
        (descriptors, threads), moved = sampler.counts(pid), sampler.moved(pid)
        looks, ended = tuple(sampler.close_looks(pid)), sampler.ended(pid)
        points = tuple(sampler.remove(pid))
        return Seen(points, descriptors, threads, looks, ended, tuple(moved) if moved else None)

    def _started(self) -> _native.MemorySampler | None:
        """The thread begins with the first process: a job without Python pays nothing."""
        if self._sampler is None and not self._is_refused:
            try:
                self._sampler = _native.MemorySampler()
            except OSError:  # No thread to be had (pids.max, RLIMIT_NPROC): the job goes on without curves.
                self._is_refused = True
        return self._sampler
