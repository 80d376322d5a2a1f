"""How a process ended that is not our child: for whoever watches the workers of an engine that waits for them itself.

And the words for what became of an item that was tried again alone: whoever tries says them, and the evidence keeps them.
"""

from __future__ import annotations

import time

from lastwords import _native

__all__ = ["OTHERWISE", "PASSED", "SAME", "wait_status"]

PASSED, SAME, OTHERWISE = "passed", "died the same way", "died otherwise"

_GLANCE = 0.005


def wait_status(pidfd: int, patience: float = 5.0) -> int | None:
    """What wait(2) told its parent, by PIDFD_GET_INFO; None: the kernel is older than 6.15, or nobody waited.

    To be called when the pidfd has become readable: from then until its parent has waited, it is nobody's news.
    """
    until = time.monotonic() + patience
    while True:
        try:
            status = _native.exit_status(pidfd)
        except (OSError, NotImplementedError):
            return None
        if status is not None or time.monotonic() > until:
            return status
        time.sleep(_GLANCE)
