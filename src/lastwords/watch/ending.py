"""One process that has ended, with all that the watcher knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lastwords.watch.curves import Points, Seen
from lastwords.watch.last_state import LastState
from lastwords.watch.machine import Beginning, Machine
from lastwords.watch.memory_kills import MemoryKills
from lastwords.watch.orders import Order
from lastwords.watch.processes import Process
from lastwords.watch.shared_files import Shares
from lastwords.watch.status import Status


@dataclass(frozen=True, slots=True)
class ParentEnd:
    pid: int
    status: Status
    seconds_before: float


@dataclass(frozen=True, slots=True)
class Ended:
    process: Process
    status: Status
    state: LastState | None
    """None: it had no box, or none that can be read."""
    time: float
    """Seconds since 1970."""
    noticed_ns: int = 0
    """When we saw it, on the monotonic clock of the boxes: it had ended by then."""
    is_command: bool = False
    memory_kills: MemoryKills | None = None
    seen: Seen = field(default_factory=Seen)
    parent_end: ParentEnd | None = None
    """Its parent had ended before it; looked at only if this was a death."""
    was_parent_dying: bool = False
    """When we noticed this end; looked at only if it was a death."""
    siblings: tuple[Points, ...] = ()
    """The memory of its living siblings so far; looked at only if this was a death."""
    shares: Shares = ()
    """Its files of shared memory over time."""
    sharers: float = 1.0
    """How many workers may have made those of which nobody knows who did, itself included; one that was there for half
    of the time counts half.
    """
    probe: str | None = None
    """A snapshot of it, taken not long before: its memory was nearly full."""
    orders: tuple[Order, ...] = ()
    """What the job had been told by others until then; looked at only if this was a death."""
    beginning: Beginning | None = None
    machine: Machine | None = None
    """Looked at only if this was a death."""

    @property
    def words(self) -> str:
        """`BrokenProcessPool, exit status 1`, as the closing line says it."""
        fatal = self.state.fatal if self.state else None
        how = f"signal {self.status.signal}" if self.status.signal else f"exit status {self.status.exit_code}"
        return f"{fatal.name}, {how}" if fatal else how
