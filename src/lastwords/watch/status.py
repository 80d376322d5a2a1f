"""How a process ended, from whoever knows it best, and who that was."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass

from lastwords import _native
from lastwords.watch.last_state import LastState
from lastwords.watch.proc import stat_fields, zombie_status
from lastwords.watch.processes import Process


@dataclass(frozen=True, slots=True)
class Status:
    raw: int | None
    """As wait(2) gives it; None: nobody knows."""
    source: str

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.raw) if self.raw is not None and os.WIFSIGNALED(self.raw) else None

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.raw) if self.raw is not None and os.WIFEXITED(self.raw) else None


def from_parent(raw: int) -> Status:
    """We were the parent and waited: nobody knows better."""
    return Status(raw, "parent")


def of_ended(process: Process) -> Status | None:
    """The status of a process that is not our child and whose pidfd says that it has ended.

    None: its parent has not reaped it, and this kernel says nothing of it before; ask again at POLLHUP.
    """
    if process.pidfd is None:
        return Status(None, "unknown")
    # Twice, because the parent may reap it between the question for a zombie and that for a reaped one.
    for _ in range(2):
        raw = exit_status(process.pidfd)
        if raw is not None:
            return Status(raw, "pidfd")
        raw = zombie_status(process.pid)
        if raw is not None and not _hung_up(process.pidfd):
            return Status(raw, "proc")
    return Status(None, "unknown") if _is_reaped(process) else None


def exit_status(pidfd: int) -> int | None:
    try:
        return _native.exit_status(pidfd)
    except (NotImplementedError, OSError):
        return None


def _hung_up(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, 0)
    return bool(poll.poll(0))


def _is_reaped(process: Process) -> bool:
    """Kernels before 6.9 never hang up; there, an ended process that is no zombie has been reaped."""
    assert process.pidfd is not None
    return _hung_up(process.pidfd) or stat_fields(process.pid)[:1] not in (["Z"], ["X"])


def with_box(status: Status, state: LastState | None) -> Status:
    """Where nobody saw the end, what the process itself recorded of it."""
    if status.raw is not None or state is None:
        return status
    if state.crash_signal:
        return Status(state.crash_signal, "black box")
    if state.exit_said and state.exit_code is not None:
        return Status((state.exit_code & 0xFF) << 8, "black box")
    return status
