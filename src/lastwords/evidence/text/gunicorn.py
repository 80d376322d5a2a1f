"""gunicorn and uvicorn: workers that answered too late, and the arbiter's question about memory after it killed one."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

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
    ),
)  # fmt: skip
