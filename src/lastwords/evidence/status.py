"""How a process ended, from whatever number somebody has of it."""

from __future__ import annotations

import os

from lastwords.evidence import signals
from lastwords.evidence.model import Status


def from_wait_status(raw: int, source: str) -> Status:
    """From the number that wait(2) and PIDFD_GET_INFO give."""
    if os.WIFSIGNALED(raw):
        name = signals.name_of(os.WTERMSIG(raw))
        return Status(source=source, signal=name, core_dumped=os.WCOREDUMP(raw))
    return Status(source=source, exit_code=os.WEXITSTATUS(raw))


def from_exit_code(code: int, source: str) -> Status:
    """From the number a shell, a container or Python's `returncode` shows.

    Shells and containers turn death by signal N into 128 + N, Python into -N. A program may also exit
    with such a number by itself: 128 and 255 do not name a signal, and stay exit codes.
    """
    number = -code if code < 0 else code - 128
    if (code < 0 or code > 128) and 1 <= number <= 64:
        return Status(source=f"{source} {code}", signal=signals.name_of(number))
    return Status(source=f"{source} {code}", exit_code=code)


def from_signal(name: str, source: str) -> Status | None:
    """From a signal's name or number; None if there is no such signal."""
    known = signals.named(name)
    return Status(source=source, signal=known.name) if known else None
