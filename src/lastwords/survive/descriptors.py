"""Files of supervisors that a forked worker must not keep: each would hold up somebody else's end.

A file is noted after it is opened and forgotten before it is closed, and a worker closes what was noted at the moment of
its fork. So it never closes a number that stands for another file by then, whatever other threads do meanwhile.
"""

from __future__ import annotations

import os

_held: set[int] = set()
"""Of all supervisors in this process."""
_inherited: set[int] = set()
"""What the parent held when this process was forked."""


def hold(*descriptors: int) -> None:
    _held.update(descriptors)


def hold_end_of(pid: int) -> int:
    """A new one, readable when that child has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:  # it is dead already, and whoever waits for all children has heard of it first
        pidfd = os.eventfd(1, os.EFD_CLOEXEC)
    hold(pidfd)
    return pidfd


def close(*descriptors: int) -> None:
    for one in descriptors:
        _held.discard(one)
        os.close(one)


def let_go(descriptor: int) -> None:
    """Somebody else closes it."""
    _held.discard(descriptor)


def close_inherited() -> None:
    """To be called first in a forked worker, before it opens anything."""
    while _inherited:
        try:
            os.close(_inherited.pop())
        except OSError:  # noqa: PERF203  # closed by a hook of somebody else's
            pass


def _forked() -> None:
    global _inherited, _held
    # A pool made in this fork has files of its own, and its workers must not close others by these numbers.
    _inherited, _held = _held, set()


os.register_at_fork(after_in_child=_forked)
