"""Dask: what the nanny did to a worker, and what the scheduler says of one that is gone."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "dask",
    (
        says("oom-kill", "memory budget", r"exceeded \d{1,3}% memory budget", by="Dask's nanny"),
        says("oom-kill", "exceeded", r"Worker .{0,120}exceeded \d{1,3}% memory", by="Dask's nanny"),
        says("memory-high", "memory use is high", r"(?:Unmanaged )?[Mm]emory use is high", by="Dask"),
        says("memory-high", "pausing worker", r"Pausing worker", by="Dask"),
        says("memory-growth", "no data to store|leaking memory", r"memory.{0,80}no data to store to disk|Perhaps some other process is leaking memory", by="Dask"),
        says("lost", "killedworker", r"KilledWorker"),
        says("lost", "killed by unknown signal"),
        says("lost", "worker process", r"Worker process (?P<pid>\d{1,9}) (?:was killed by signal|exited|died)"),
        says("lost", "died unexpectedly", r"Worker process died unexpectedly"),
        says("lost", "attempted to run task", r"Attempted to run task .{1,200} on \d{1,3} different workers"),
        says("loop-blocked", "event loop was unresponsive", r"Event loop was unresponsive in \w{1,20} for (?P<seconds>[\d.]{1,10})s"),
        says("network-failure", "commclosederror", r"CommClosedError.{0,300}(?:timed out|refused|unreachable|no route)"),
        says("peer-lost", "commclosederror", unless=r"timed out|refused|unreachable|no route"),
        says("heartbeat-lost", "heartbeat", r"Worker failed to heartbeat|did not heartbeat within|Removing worker.{0,80}heartbeat"),
        says("parent-gone", "to scheduler", r"Lost connection to scheduler|Connection to scheduler broken"),
        says("start-failed", "failed to start", r"Nanny failed to start worker process|Worker failed to start"),
        says("stop-request", "closing|stopping", r"(?:Closing|Stopping) (?:Nanny|worker).{0,120}(?:reason: (?P<reason>[\w-]{1,40})|scheduler-close)", unless=r"connection-broken"),
        says("network-failure", "scheduler-connection-broken"),
    ),
)  # fmt: skip
