"""Who can tell how a process ended that is not our child. Chosen once, when the run begins.

In this order: the kernel, through a pidfd that was opened while the process lived (Linux 6.15); the kernel's proc
connector, which tells root of the end of every process (older kernels); /proc, while nobody has reaped the zombie; and
else nobody, which is then said. None of them takes a status away from whoever waits for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select

from lastwords import _native
from lastwords.watch.proc import started, stat_fields, zombie_status
from lastwords.watch.processes import Process
from lastwords.watch.status import Status

FORCE = "LASTWORDS_WITNESS"
"""Names the only one to ask beside /proc: `pidfd`, `connector` or `none`. For tests, and for doubts."""
FIRST_WITH_EXITS = (6, 15)


class Witnesses:
    def __init__(self, only: str | None = None) -> None:
        self.refused: str | None = None
        """Why the kernel cannot be asked; None: it can."""
        self._pidfd = only == "pidfd" or (only is None and kernel_tells_exits())
        self._connector: _native.ProcConnector | None = None
        if only in (None, "connector") and not self._pidfd:
            try:
                self._connector = _native.ProcConnector()
            except OSError as error:
                self.refused = f"the proc connector: {error.strerror or error}"
        elif not self._pidfd:
            self.refused = f"{FORCE} says so"

    @property
    def descriptor(self) -> int | None:
        """Readable when there is something to `hear`."""
        return self._connector.descriptor() if self._connector is not None else None

    def hear(self) -> None:
        if self._connector is not None:
            self._connector.read_all()

    def of_ended(self, process: Process) -> Status | None:
        """The status of a process that has ended.

        None: its parent has not reaped it, and nobody says anything of it before; ask again at POLLHUP.
        """
        if self._connector is not None:
            raw = self._connector.take(process.pid)
            if raw is not None:
                return Status(raw, "proc connector")
        # Twice, because the parent may reap it between the question for a zombie and that for a reaped one.
        for _ in range(2):
            raw = self._from_pidfd(process)
            if raw is not None:
                return Status(raw, "pidfd")
            raw = zombie_status(process.pid)
            if raw is not None and not _is_reaped(process):
                return Status(raw, "proc")
        return Status(None, "unknown") if _is_reaped(process) else None

    def _from_pidfd(self, process: Process) -> int | None:
        if not self._pidfd or process.pidfd is None:
            return None
        with contextlib.suppress(NotImplementedError, OSError):
            return _native.exit_status(process.pidfd)
        return None


def chosen() -> Witnesses:
    return Witnesses(os.environ.get(FORCE) or None)


def kernel_tells_exits() -> bool:
    """6.13 and 6.14 know the question and not this answer, and one that lives does not show the difference."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < FIRST_WITH_EXITS:
        return False
    try:
        descriptor = os.pidfd_open(os.getpid())
    except OSError:  # gVisor and its like call themselves what they please.
        return False
    try:
        _native.exit_status(descriptor)
    except (NotImplementedError, OSError):
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def has_ended(process: Process) -> bool:
    """For one without a pidfd: its number is gone, is a zombie's, or is somebody else's by now."""
    return _is_gone(process) or stat_fields(process.pid)[:1] in (["Z"], ["X"])


def _is_gone(process: Process) -> bool:
    return process.started is None or started(process.pid) != process.started


def _is_reaped(process: Process) -> bool:
    """Kernels before 6.9 never hang up; there, an ended process that is no zombie has been reaped."""
    if process.pidfd is None:
        return _is_gone(process)
    return _hung_up(process.pidfd) or stat_fields(process.pid)[:1] not in (["Z"], ["X"])


def _hung_up(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, 0)
    return bool(poll.poll(0))
