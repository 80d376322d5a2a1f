"""gunicorn and uvicorn: workers that answered too late, and the arbiter's question about memory after it killed one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

AT_ONCE = 5
"""Seconds in which a master starts all that it is told to start."""
_CLOCK = re.compile(r"\b(\d\d):(\d\d):(\d\d)\b")


def _booted_again(excerpt: Excerpt) -> Iterator[Mention]:
    """A worker that is booted later than the first ones takes the place of one that is gone, if nobody says so either."""
    begun: int | None = None
    for index in excerpt.with_needle("booting worker with pid", 60):
        clock = _CLOCK.search(excerpt.lines[index].text)
        if clock is None:
            continue
        seconds = (int(clock[1]) * 60 + int(clock[2])) * 60 + int(clock[3])
        if begun is not None and abs(seconds - begun) > AT_ONCE:
            yield mention("lost", excerpt, index, "gunicorn")
            return
        begun = seconds if begun is None else begun


READER = Reader(
    "gunicorn",
    (
        says("work-timeout", "worker timeout", r"WORKER TIMEOUT \(pid: ?(?P<pid>\d{1,9})\)", by="gunicorn"),
        says("memory-guess", "perhaps out of memory", by="gunicorn, which asks so after every SIGKILL"),
        says("signal", "was sent sigkill", r"\(pid: ?(?P<pid>\d{1,9})\) was sent SIGKILL", signal="SIGKILL"),
        says("stop-request", "handling signal", r"Handling signal: (?P<signal>term|int|quit|hup|winch)"),
        says("start-failed", "worker failed to boot", r"Worker failed to boot"),
        says("parent-gone", "parent changed", r"Parent changed, shutting down"),
        says("parent-gone", "parent process", r"parent process \[\d{1,9}\] (?:died|stopped unexpectedly)"),
        says("lost", "child process", r"Child process \[?\d{1,9}\]? died"),
        says("lost-child", "child process", r"Child process \[?\d{1,9}\]? died"),
    ),
    _booted_again,
)  # fmt: skip
