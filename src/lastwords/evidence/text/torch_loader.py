"""torch's DataLoader: its workers' deaths, and its own guesses about them."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "torch DataLoader",
    (
        says("lost", "dataloader worker", r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]{1,60})\) (?:exited unexpectedly|is killed by signal)"),
        says("signal", "dataloader worker", r"is killed by signal: Killed", signal="SIGKILL"),
        says("signal", "dataloader worker", r"is killed by signal: Aborted", signal="SIGABRT"),
        says("signal", "bus error encountered in worker", signal="SIGBUS"),
        says("shm-hint", "bus error encountered in worker"),
        says("signal", "segmentation fault encountered in worker", r"Unexpected segmentation fault", signal="SIGSEGV"),
        says("work-timeout", "dataloader timed out", r"DataLoader timed out after (?P<seconds>\d{1,7}) seconds", by="torch"),
        says("cpu-warning", "suggested max number of worker", r"will create \d{1,5} worker processes.{0,120}suggested max number of worker"),
        says("fork-hint", "worker creation", r"excessive worker creation"),
        says("passed-on", "caught", r"Caught (?P<type>\w{1,80}) in DataLoader worker process (?P<worker>\d{1,5})"),
    ),
)  # fmt: skip
