"""Whether workers can be started and kept: what went wrong in a row, and when enough is enough."""

from __future__ import annotations

MOST_FAILED = 3
"""Workers that died before they served."""
MOST_IDLE_DEATHS = 20
"""With no task finished in between: something outside does not let workers live."""
REPLACED_AT_ONCE = 5
"""Of those. The others come after a pause each: a burst of kills, on a machine too busy to get a task done between two
of them, is not the end.
"""
MOST_REFUSED, PAUSE = 20, 0.25
"""By the system, and seconds between two tries. It has no processes, files or memory left, often not for long."""


class Starts:
    def __init__(self) -> None:
        self.failed = self.refused = self._idle_deaths = 0
        self._not_before = 0.0

    def may_begin(self, now: float) -> bool:
        """Too many have failed, and the pool breaks as soon as the last one is explained: no more until then."""
        return self.failed < MOST_FAILED and not self.is_pausing(now)

    def is_pausing(self, now: float) -> bool:
        return now < self._not_before

    def was_refused(self, now: float) -> bool:
        """True: too often."""
        self.refused += 1
        self._not_before = now + PAUSE
        return self.refused > MOST_REFUSED

    def begun(self) -> None:
        self.refused = 0

    def finished(self) -> None:
        """A task has: workers live."""
        self.failed = self._idle_deaths = 0

    def died_idle(self, now: float, *, while_starting: bool, has_finished: bool) -> None:
        """Nobody's task was to blame."""
        self._idle_deaths = 0 if has_finished else self._idle_deaths + 1
        self.failed += while_starting
        if self._idle_deaths > REPLACED_AT_ONCE:
            self._not_before = now + PAUSE

    def was_killed_from_outside(self) -> None:
        """One that died while it started: that is no fault of starting."""
        self.failed = max(0, self.failed - 1)

    def are_hopeless(self, *, after_start: bool) -> bool:
        """`after_start`: one that died while it started is explained. Until then nobody knows whose fault that was."""
        return (after_start and self.failed >= MOST_FAILED) or self._idle_deaths >= MOST_IDLE_DEATHS
