"""Who hangs: a process whose item takes longer than it may is asked where it stands, and left as it was.

Nobody is looked at more often than needed: an item that began at `t` can be too old at `t + after` and not before,
and a process without an item at `now + after` at the earliest. Nothing here waits: the answer to the probe signal
is looked for on each turn of the loop, for at most a second.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lastwords.watch import probes
from lastwords.watch.curves import Points
from lastwords.watch.processes import Process
from lastwords.watch.threads import CpuTime, Thread, cpu_time, look

PATIENCE_NS = 1_000_000_000
"""For the answer of a process that hangs. One that is stopped, or sleeps uninterruptibly, gives none."""
GLANCE_NS = 5_000_000
"""How often we look whether the answer is complete."""


@dataclass(frozen=True, slots=True)
class Policy:
    after: float
    """Seconds that an item may take."""
    kill: bool = False


@dataclass(frozen=True, slots=True)
class Hung:
    process: Process
    box: str
    started_ns: int
    """When its item began, on the monotonic clock of the boxes."""
    asked_ns: int
    after: float
    time: float
    """Seconds since 1970."""
    threads: tuple[Thread, ...] = ()
    """As they were before the process was asked."""
    before: CpuTime | None = None
    now: CpuTime | None = None
    memory: Points = ()
    probe: str | None = None
    """The file of the snapshot; None: the process gave no answer in time."""

    @property
    def seconds(self) -> float:
        return (self.asked_ns - self.started_ns) / 1e9


OnHang = Callable[[Hung], bool]
"""Called once for each item that hangs; False: it could not be kept."""


@dataclass(slots=True)
class _Watched:
    due_ns: int = 0
    cpu: tuple[CpuTime, ...] = ()
    """When it was looked at last, and before that."""
    explained_ns: int = 0
    """The beginning of the item that was explained last: nobody wants to hear of it twice."""
    asked: Hung | None = None


class Hangs:
    def __init__(self, policy: Policy, on_hang: OnHang, memory_of: Callable[[Process], Points]) -> None:
        self._policy = policy
        self._on_hang = on_hang
        self._memory_of = memory_of
        self._watched: dict[Process, _Watched] = {}
        self.explained: list[Hung] = []
        self.killed: set[Process] = set()

    def timeout(self) -> float | None:
        """Seconds until there is something to do; None: nobody is watched."""
        due = min((one.due_ns for one in self._watched.values()), default=None)
        return None if due is None else max(0, due - time.monotonic_ns()) / 1e9

    def look(self, living: Iterable[Process]) -> None:
        here = {process for process in living if process.box is not None and process.pidfd is not None}
        for gone in self._watched.keys() - here:
            del self._watched[gone]
        for new in here - self._watched.keys():
            self._watched[new] = _Watched()
        now = time.monotonic_ns()
        for process, watched in list(self._watched.items()):
            if watched.due_ns <= now:
                self._examine(process, watched, now)

    def _examine(self, process: Process, watched: _Watched, now: int) -> None:
        if watched.asked is not None:
            self._take_answer(process, watched, watched.asked, now)
            return
        allowed = int(self._policy.after * 1e9)
        state = probes.state_of(process)
        started = state.started_ns if state is not None else 0
        if state is None or not started or started == watched.explained_ns:
            watched.due_ns = now + allowed
        elif now < started + allowed:
            watched.due_ns = started + allowed
        else:
            watched.asked = self._ask(process, watched, state, now)
            watched.due_ns = now + GLANCE_NS
            return
        used = cpu_time(process.pid, now)
        watched.cpu = (*watched.cpu[-1:], used) if used is not None else watched.cpu

    def _ask(self, process: Process, watched: _Watched, state: probes.State, now: int) -> Hung:
        assert process.box is not None and process.pidfd is not None
        seen = look(process.pid)
        hung = Hung(
            process=process,
            box=process.box,
            started_ns=state.started_ns,
            asked_ns=now,
            after=self._policy.after,
            time=time.time(),
            threads=seen,
            before=self._long_ago(watched.cpu, now),
            now=cpu_time(process.pid, now),
            memory=self._memory_of(process),
        )
        probes.forget(hung.box)
        if not _is_stopped(seen):
            probes.ask(process, state)
        return hung

    def _long_ago(self, cpu: tuple[CpuTime, ...], now: int) -> CpuTime | None:
        """A look that lies far enough back: the kernel books a thread's time when it stops it, not while it runs."""
        enough = int(self._policy.after * 1e9) // 2
        return next((one for one in reversed(cpu) if now - one.taken_ns >= enough), cpu[0] if cpu else None)

    def _take_answer(self, process: Process, watched: _Watched, hung: Hung, now: int) -> None:
        probe = probes.complete(hung.box)
        if probe is None and now < hung.asked_ns + PATIENCE_NS and not _is_stopped(hung.threads):
            watched.due_ns = now + GLANCE_NS
            return
        watched.asked, watched.due_ns = None, 0
        state = probes.state_of(process)
        # It may have got on while we asked: then there is nothing to explain, and all begins anew.
        if state is not None and state.started_ns == hung.started_ns:
            watched.explained_ns = hung.started_ns
            self._explain(process, replace(hung, probe=probe))
        probes.forget(hung.box)

    def _explain(self, process: Process, hung: Hung) -> None:
        if self._on_hang(hung):
            self.explained.append(hung)
        if self._policy.kill and process.pidfd is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
                self.killed.add(process)


def _is_stopped(seen: tuple[Thread, ...]) -> bool:
    """By SIGSTOP or a debugger: the signal would stay pending, and surprise it later."""
    return any(thread.state in ("T", "t") for thread in seen)
