"""Whether the kernel killed for memory in a process's control groups, between its beginning and its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lastwords import _native
from lastwords.watch.proc import is_dying


@dataclass(frozen=True, slots=True)
class MemoryKills:
    cgroup: str
    before: int
    after: int


class MemoryKillCounters:
    """The last known counters of every control group of the job."""

    def __init__(self, ours: Sequence[tuple[str, int, int]] | None = None) -> None:
        """`ours`: our own groups and their counters, as they were before the first of our children began."""
        self._last: dict[tuple[str, int], int] = {}
        self._groups: dict[int, tuple[tuple[str, int], ...]] = {}
        self._assumed: set[int] = set()
        self._ours = _native.oom_kills(os.getpid()) if ours is None else ours
        for group, version, count in self._ours:
            self._last[group, version] = count

    def begin(self, pid: int) -> None:
        """To be asked while the process lives: a dead one is in no group, and a zombie seems to be in the root's."""
        found = _native.oom_kills(pid)
        if found and not is_dying(pid):
            self.move(pid, found)
        elif pid not in self._groups:
            self._assumed.add(pid)
            self.move(pid, self._ours)

    def begin_child(self, pid: int) -> None:
        """Of our own, which is born into our groups: it may be dead before anybody can look."""
        self.move(pid, self._ours)

    def move(self, pid: int, found: Iterable[tuple[str, int, int]]) -> None:
        """It is in these groups now, and they had these counters when that was noticed."""
        found = tuple(found)
        self._groups[pid] = tuple((group, version) for group, version, _ in found)
        for group, version, count in found:
            self._last.setdefault((group, version), count)

    def as_born(self, pid: int, membership: str) -> None:
        """Where its own box says that it was, for one that had ended before we could look, or of which nobody told us.

        A group that nobody was seen in before has no counter from before: then all is as if the box had said nothing.
        """
        if pid in self._groups and pid not in self._assumed:
            return
        groups = tuple((group, version) for group, version, _ in _native.oom_kills_of(membership))
        if groups and all(group in self._last for group in groups):
            self._groups[pid] = groups
            self._assumed.discard(pid)

    def end(self, pid: int) -> MemoryKills | None:
        """The nearest group in which somebody was killed meanwhile, or else the process's own."""
        changes = [self._change(*group) for group in self._groups.pop(pid, ())]
        known = [change for change in changes if change is not None]
        grown = next((change for change in known if change.after > change.before), None)
        if pid in self._assumed:  # In our own groups most likely; that nothing happened there proves nothing.
            self._assumed.discard(pid)
            return grown
        return grown or (known[0] if known else None)

    def _change(self, group: str, version: int) -> MemoryKills | None:
        after = _native.oom_kills_in(group, version)
        if after is None:
            return None
        before = self._last[group, version]
        self._last[group, version] = after
        return MemoryKills(group, before, after)
