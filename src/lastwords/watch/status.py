"""How a process ended, from whoever knows it best, and who that was."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lastwords.watch.last_state import LastState


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


def with_box(status: Status, state: LastState | None) -> Status:
    """Where nobody saw the end, what the process itself recorded of it."""
    if status.raw is not None or state is None:
        return status
    if state.crash_signal:
        return Status(state.crash_signal, "black box")
    if state.exit_said and state.exit_code is not None:
        return Status((state.exit_code & 0xFF) << 8, "black box")
    return status
