"""Who hangs: a process whose item takes longer than it may is asked where it stands, and left as it was.

Nobody is looked at more often than needed: an item that began at `t` can be too old at `t + after` and not before,
and a process without an item at `now + after` at the earliest. Nothing here waits: the answer to the probe signal
is looked for on each turn of the loop, for a second, and longer where the process is seen to need it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lastwords.watch import machine, outside, probes
from lastwords.watch.curves import Points
from lastwords.watch.machine import Beginning, Machine
from lastwords.watch.processes import Process
from lastwords.watch.spaces import Mount, mounts_of
from lastwords.watch.threads import CpuTime, Thread, cpu_use, look

PATIENCE_NS = 1_000_000_000
"""For the answer of a process that hangs. One that is stopped, or sleeps uninterruptibly, gives none."""
PATIENCE_WITH_STARVED_NS = 5_000_000_000
"""For one that would answer if it were let run: its stacks are wanted most where it starves."""
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
    inside: outside.Inside | None = None
    """What its memory says, for one that gave no answer."""
    mounts: Mapping[str, Mount] = field(default_factory=dict)
    """Its file systems, by their places."""
    parent_threads: int | None = None
    """Of its parent, when it was forked."""
    machine: Machine | None = None
    """When it was asked."""
    others: int = 0
    """How many other processes of the job work on items, or hang."""
    alike: int = 0
    """How many of these hang in the same system call."""

    @property
    def seconds(self) -> float:
        return (self.asked_ns - self.started_ns) / 1e9


Explain = Callable[[Callable[[], object], Callable[[], object]], None]
"""Does the first, now or later, and then the second here, where processes come and go."""


def at_once(work: Callable[[], object], then: Callable[[], object]) -> None:
    work()
    then()


OnHang = Callable[[Hung], bool]
"""Called once for each item that hangs; False: it could not be kept."""


@dataclass(slots=True)
class _Watched:
    due_ns: int = 0
    cpu: tuple[CpuTime, ...] = ()
    """When it was looked at last, and before that."""
    explained_ns: int = 0
    """The beginning of the item that was explained last: nobody wants to hear of it twice."""
    started_ns: int = 0
    """Of the item that it was on when it was last looked at; 0: none."""
    stood_in: int | None = None
    """The system call that its main thread was in when it was asked."""
    asked: Hung | None = None
    is_being_explained: bool = False
    """Its snapshot is being read, and must stay."""


class Hangs:
    def __init__(
        self,
        policy: Policy,
        on_hang: OnHang,
        memory_of: Callable[[Process], Points],
        explain: Explain = at_once,
        beginning_of: Callable[[Process], Beginning | None] = lambda _: None,
    ) -> None:
        self._policy = policy
        self._on_hang = on_hang
        self._memory_of = memory_of
        self._explain_by = explain
        self._beginning_of = beginning_of
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
        if watched.is_being_explained:
            watched.due_ns = now + GLANCE_NS
            return
        if watched.asked is not None:
            self._take_answer(process, watched, watched.asked, now)
            return
        allowed = int(self._policy.after * 1e9)
        state = probes.state_of(process)
        started = watched.started_ns = state.started_ns if state is not None else 0
        if state is None or not started or started == watched.explained_ns:
            watched.due_ns = now + allowed
        elif now < started + allowed:
            watched.due_ns = started + allowed
        else:
            watched.asked = self._ask(process, watched, state, now)
            watched.stood_in = _main_call(watched.asked.threads)
            watched.due_ns = now + GLANCE_NS
            return
        used = cpu_use(process.pid, now)
        watched.cpu = (*watched.cpu[-1:], used) if used is not None else watched.cpu

    def _ask(self, process: Process, watched: _Watched, state: probes.State, now: int) -> Hung:
        assert process.box is not None and process.pidfd is not None
        seen, beginning = look(process.pid), self._beginning_of(process)
        hung = Hung(
            process=process,
            box=process.box,
            started_ns=state.started_ns,
            asked_ns=now,
            after=self._policy.after,
            time=time.time(),
            threads=seen,
            before=self._long_ago(watched.cpu, now),
            now=cpu_use(process.pid, now),
            memory=self._memory_of(process),
            parent_threads=beginning.parent_threads if beginning is not None else None,
            machine=machine.look(process.pid, beginning, None) if beginning is not None else None,
            mounts=mounts_of(process.pid),
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
        if probe is None and not _is_stopped(hung.threads) and _may_answer(process, now - hung.asked_ns):
            watched.due_ns = now + GLANCE_NS
            return
        watched.asked, watched.due_ns = None, 0
        state = probes.state_of(process)
        # It may have got on while we asked: then there is nothing to explain, and all begins anew.
        if state is not None and state.started_ns == hung.started_ns:
            watched.explained_ns = hung.started_ns
            alike, others = self._beside(process, watched)
            self._explain(process, watched, replace(hung, probe=probe, alike=alike, others=others))
        else:
            probes.forget(hung.box)

    def _explain(self, process: Process, watched: _Watched, hung: Hung) -> None:
        def work() -> None:
            # Here, and not in the loop: whoever reads its memory may have to wait with it.
            if self._on_hang(replace(hung, inside=_inside(hung))):
                self.explained.append(hung)

        def then() -> None:
            watched.is_being_explained = False
            probes.forget(hung.box)
            self._kill(process)

        watched.is_being_explained = True
        self._explain_by(work, then)

    def _beside(self, process: Process, watched: _Watched) -> tuple[int, int]:
        """Of the other processes at work: how many hang in the same call, and how many there are. When all of them
        hang, all are asked before the first is explained.
        """
        others = [one for other, one in self._watched.items() if other is not process and one.started_ns]
        hanging = (one for one in others if one.asked is not None or one.explained_ns == one.started_ns)
        return sum(one.stood_in == watched.stood_in for one in hanging), len(others)

    def _kill(self, process: Process) -> None:
        """If it is there still, and policy has it so."""
        if self._policy.kill and process.pidfd is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
                self.killed.add(process)


def _may_answer(process: Process, waited_ns: int) -> bool:
    if waited_ns < PATIENCE_NS:
        return True
    return waited_ns < PATIENCE_WITH_STARVED_NS and probes.is_coming(process)


def _inside(hung: Hung) -> outside.Inside | None:
    """For one that could not be asked."""
    return outside.look(hung.process.pid, hung.threads[0]) if hung.probe is None and hung.threads else None


def _main_call(seen: tuple[Thread, ...]) -> int | None:
    return seen[0].syscall if seen else None


def _is_stopped(seen: tuple[Thread, ...]) -> bool:
    """By SIGSTOP or a debugger: the signal would stay pending, and surprise it later."""
    return any(thread.state in ("T", "t") for thread in seen)
