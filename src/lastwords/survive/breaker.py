"""A circuit breaker: too many deaths in a short time, and tasks fail at once with the diagnosis instead of dying too.

Closed, all goes its way. Open, nothing is handed out. After a pause as long as the period it is half open: one task
at a time is tried; if that finishes the breaker closes, if it dies the breaker is open again.
"""

from __future__ import annotations

import logging
from collections import deque

from lastwords.survive.policy import WorkerDied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lastwords.survive.deaths import Death

log = logging.getLogger("lastwords.survive")
CLOSED, OPEN, HALF_OPEN = "closed", "open", "half open"


class Breaker:
    """`intensity`: how many deaths in how many seconds are still borne. None: any number."""

    def __init__(self, intensity: tuple[int, float] | None) -> None:
        self._most, self._seconds = intensity or (0, 0.0)
        self._is_there = intensity is not None
        self._recent: deque[float] = deque()
        self._opened = 0.0
        self.state = CLOSED
        self.reason: WorkerDied | None = None

    @property
    def words(self) -> str:
        return f"more than {self._most} workers died in {self._seconds:g} s"

    def died(self, now: float) -> bool:
        """One more. True: that opens the breaker, and the owner says why (`reason`) as soon as it is known."""
        if not self._is_there or self.state == OPEN:
            return False
        self._recent.append(now)
        while self._recent[0] < now - self._seconds:
            self._recent.popleft()
        if self.state == CLOSED and len(self._recent) <= self._most:
            return False
        self.state, self.reason, self._opened = OPEN, None, now
        self._recent.clear()
        return True

    def say_why(self, death: Death) -> None:
        """What opened it is explained: whoever is refused from now on is told."""
        last = death.error()
        words = f"{self.words}, so no task is tried for a while; the last:\n{last}"
        self.reason = WorkerDied(words, diagnosis=death.diagnosis, item=last.item, attempts=last.attempts)
        log.warning("%s", words.splitlines()[0], extra={"lastwords": death.as_dict()})

    def finished(self) -> None:
        """A task has: workers live again."""
        if self.state == HALF_OPEN:
            self.state, self.reason = CLOSED, None

    def pass_time(self, now: float) -> None:
        if self.state == OPEN and self.reason is not None and now >= self._opened + self._seconds:
            self.state = HALF_OPEN
