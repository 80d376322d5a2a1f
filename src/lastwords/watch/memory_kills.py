"""Whether the kernel killed for memory in a process's control groups, between its beginning and its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lastwords import _native


@dataclass(frozen=True, slots=True)
class MemoryKills:
    cgroup: str
    before: int
    after: int


class MemoryKillCounters:
    """The last known counters of every control group of the job."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], int] = {}
        self._groups: dict[int, tuple[tuple[str, int], ...]] = {}

    def begin(self, pid: int) -> None:
        """To be asked while the process lives: a dead one is in no group."""
        self.move(pid, _native.oom_kills(pid))

    def move(self, pid: int, found: Iterable[tuple[str, int, int]]) -> None:
        """It is in these groups now, and they had these counters when that was noticed."""
        found = tuple(found)
        self._groups[pid] = tuple((group, version) for group, version, _ in found)
        for group, version, count in found:
            self._last.setdefault((group, version), count)

    def end(self, pid: int) -> MemoryKills | None:
        """The nearest group in which somebody was killed meanwhile, or else the process's own."""
        changes = [self._change(*group) for group in self._groups.pop(pid, ())]
        known = [change for change in changes if change is not None]
        return next((change for change in known if change.after > change.before), known[0] if known else None)

    def _change(self, group: str, version: int) -> MemoryKills | None:
        after = _native.oom_kills_in(group, version)
        if after is None:
            return None
        before = self._last[group, version]
        self._last[group, version] = after
        return MemoryKills(group, before, after)
