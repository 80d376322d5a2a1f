"""uWSGI: harakiri, respawned workers, and the limits it enforces itself."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "uwsgi",
    (
        says("work-timeout", "harakiri", r"HARAKIRI|harakiri (?:!!!|timeout|expired)", by="uWSGI"),
        says("lost", "damn ! worker", r"DAMN ! worker (?P<worker>\d{1,5}) \(pid: (?P<pid>\d{1,9})\) died"),
        says("memory-limit", "evil|rss", r"evil reload on (?:rss|as)|reload.on.rss", by="uWSGI"),
        says("memory-limit", "evil memory", by="uWSGI"),
        says("memory-growth", "reload-on-rss", r"reload-on-rss(?! ?=)", by="uWSGI"),
        says("stop-request", "kill|received", r"SIG(?:INT|TERM|QUIT)/SIG(?:INT|TERM|QUIT) received|brutally killing workers|\.\.\.gracefully killing"),
        says("start-failed", "no python application found"),
        says("backlog", "listen queue", r"listen queue.{0,40}full"),
    ),
)  # fmt: skip
