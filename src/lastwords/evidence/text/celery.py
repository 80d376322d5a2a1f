"""Celery and billiard: lost workers, time limits, and workers that never came up."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "celery",
    (
        says("lost", "workerlosterror", r"WorkerLostError"),
        says("lost", "worker exited prematurely"),
        says("time-limit", "hard time limit", r"Hard time limit \((?P<seconds>[\d.]{1,10})s?\) exceeded", by="Celery"),
        says("time-limit", "soft time limit", r"Soft time limit \((?P<seconds>[\d.]{1,10})s?\) exceeded", by="Celery"),
        says("time-limit", "timelimitexceeded", r"(?:Soft)?TimeLimitExceeded", by="Celery"),
        says("work-timeout", "timed out waiting for up message", by="Celery"),
        says("memory-limit", "memory", r"max.memory.per.child.{0,40}exceed|exceed.{0,40}max.memory.per.child", by="Celery"),
        says("memory-limit", "child process exiting after exceeding memory limit", by="Celery"),
        says("stop-request", "shutdown", r"(?:Warm|Cold) shutdown"),
        says("stop-request", "cold shutdown", r"Cold shutdown"),
        says("stop-request", "revoked|terminating", r"Discarding revoked task|TaskRevokedError|Terminating \S{1,80} \(Signals\.SIG|revoked.{0,20}terminate"),
        says("worker-exited", "per", r"max.tasks.per.child"),
        says("network-failure", "heartbeats missed", r"Too many heartbeats missed"),
        says("network-failure", "consumer: c", r"consumer: (?:Connection to broker lost|Cannot connect to)"),
    ),
)  # fmt: skip
