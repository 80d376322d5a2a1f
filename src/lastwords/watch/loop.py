"""The loop while the command runs: its signals, its terminal, its processes, and the wait for the last of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lastwords.watch import last_state, signals
from lastwords.watch.ending import Ended
from lastwords.watch.explaining import Explaining
from lastwords.watch.hangs import Hangs, Hung, OnHang, Policy
from lastwords.watch.inquest import Inquest, OnDeath
from lastwords.watch.leftovers import Leftover
from lastwords.watch.orders import Orders
from lastwords.watch.proc import is_dying, is_stopped, read_text
from lastwords.watch.processes import Process
from lastwords.watch.run_directory import RunDirectory
from lastwords.watch.watcher import Watcher

# After the command's end: how long its last processes may take, first those that are seen dying (a core of
# 700 MB has to be written), then those of which we do not know whether they ever will.
PATIENCE_WITH_DYING = 10.0
PATIENCE = 0.25
GLANCE = 0.05
# They go when the last of those goes that they serve, Spark's when its JVM does: we may be first.
ENDS_BY_ITSELF = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "pyspark.daemon",
    "spark_daemon",
)
JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


@dataclass(slots=True)
class Outcome:
    """How the run went. `raw_status` is the command's own."""

    raw_status: int
    deaths: list[Ended] = field(default_factory=list)
    consequences: list[Ended] = field(default_factory=list)
    unexplained: list[Ended] = field(default_factory=list)
    """Deaths that `on_death` could not keep; their boxes are where they were."""
    still_running: list[Process] = field(default_factory=list)
    hangs: list[Hung] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)


class Loop:
    def __init__(
        self,
        pid: int,
        inbox: signals.Inbox,
        directory: RunDirectory | None,
        on_death: OnDeath,
        hangs: tuple[Policy, OnHang] | None = None,
    ) -> None:
        self._inbox = inbox
        self._is_recorded = directory is not None
        self._epoll = select.epoll()
        self._epoll.register(inbox.descriptor, select.EPOLLIN)
        self._watcher = Watcher(pid, directory, self._epoll)
        self._orders = Orders(directory.path if directory is not None else None)
        self._inquest = Inquest(
            directory,
            self._watcher.living,
            on_death,
            self._watcher.witnesses.refused,
            self._watcher.memory_of,
            self._orders,
        )
        self._explaining = Explaining()
        self._epoll.register(self._explaining.bell, select.EPOLLIN)
        self._hangs = self._look_out(*hangs) if hangs is not None else None
        if self._hangs is not None:
            self._inquest.killed_by_us = self._hangs.killed
        self._ctrl_z = False

    def _look_out(self, policy: Policy, on_hang: OnHang) -> Hangs:
        watcher = self._watcher
        return Hangs(policy, on_hang, watcher.memory_of, self._explaining.put, watcher.beginning_of)

    def run(self) -> Outcome:
        with self._epoll:
            while self._watcher.command_status is None:
                self._turn(timeout=self._until_next_look())
                self._look_for_hangs()
            self._wait_for_the_last()
        self._hear(self._watcher.never_announced())
        self._explaining.finish()
        self._explaining.close()
        left = [process for process in self._watcher.living if _is_left_behind(process)]
        return Outcome(
            raw_status=self._watcher.command_status,
            deaths=self._inquest.deaths,
            consequences=self._inquest.consequences,
            unexplained=self._inquest.unexplained,
            still_running=left,
            hangs=self._hangs.explained if self._hangs else [],
            leftovers=self._watcher.leftovers.found(self._watcher.living, left) if self._is_recorded else [],
        )

    def _until_next_look(self) -> float | None:
        hangs = self._hangs.timeout() if self._hangs is not None else None
        return min((one for one in (hangs, self._watcher.glance) if one is not None), default=None)

    def _look_for_hangs(self) -> None:
        if self._hangs is not None:
            self._hangs.look(self._watcher.living)

    def _turn(self, timeout: float | None) -> None:
        """Signals first: a job that is told to stop must not wait for us."""
        ready = self._epoll.poll(timeout)
        self._read_signals()
        self._explaining.settle()
        ended = self._watcher.ended(ready)
        if ended and self._is_recorded:
            # What the terminal sent to all of us has come by now, and before it what it did to them is judged.
            self._read_signals()
            self._hear(ended)

    def _hear(self, ended: Sequence[Ended]) -> None:
        for _ in range(self._inquest.hear(ended)):
            self._explaining.put(self._inquest.explain_one)

    def _read_signals(self) -> None:
        for incoming in self._inbox.read():
            self._handle(incoming)

    def _handle(self, incoming: signals.Incoming) -> None:
        match signals.meaning(incoming, os.getpid()):
            case signals.Meaning.TERMINAL:
                self._inquest.history.terminal_signals.add(incoming.number)
                self._ctrl_z |= incoming.number == signal.SIGTSTP
            case signals.Meaning.FORWARD:
                # First: what is written down may wait for a disk, and the job must not.
                self._send(incoming.number)
                self._orders.hear(incoming)
            case signals.Meaning.CONTINUE if is_stopped(self._watcher.command):
                self._send(signal.SIGCONT)
            case signals.Meaning.CHILD:
                self._stop_with_command()

    def _send(self, number: int) -> None:
        if self._watcher.command_status is None:
            with contextlib.suppress(OSError):
                os.kill(self._watcher.command, number)

    def _stop_with_command(self) -> None:
        """Ctrl-Z stops the command; the shell gets its prompt back only when we have stopped, too.

        A SIGSTOP that did not come of Ctrl-Z is none of our business: tools like cpulimit stop and continue a
        process by its pid, and nobody would ever continue us.
        """
        try:
            found = os.waitid(os.P_PID, self._watcher.command, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return
        if found is not None and (found.si_status in JOB_CONTROL or self._ctrl_z):
            self._ctrl_z = False
            signals.with_default_action(found.si_status)

    def _wait_for_the_last(self) -> None:
        """The pool's workers that die of the same thing, the resource tracker. A daemon lives on, and may."""
        begun = time.monotonic()
        while self._is_recorded and self._watcher.is_anybody_left():
            is_any_dying = any(_is_dying(process) for process in self._watcher.living)
            left = begun + (PATIENCE_WITH_DYING if is_any_dying else PATIENCE) - time.monotonic()
            if left <= 0:
                return
            self._turn(timeout=min(left, GLANCE))


def _is_left_behind(process: Process) -> bool:
    command = read_text(f"/proc/{process.pid}/cmdline")
    return not any(name in command for name in ENDS_BY_ITSELF) and _is_still_python(process)


def _is_still_python(process: Process) -> bool:
    """False: it was forked from Python and has become another program, like the JVM that pyspark starts. Its box is no
    longer mapped, and there was nothing of it to be watched. Where we may not look, it counts as before.
    """
    if process.box is None:
        return True
    name = os.path.basename(process.box)
    try:
        with open(f"/proc/{process.pid}/maps", encoding="utf-8", errors="replace") as maps:
            return any(name in line for line in maps)
    except OSError:
        return True


def _is_dying(process: Process) -> bool:
    if is_dying(process.pid):
        return True
    state = last_state.read(process.box) if process.box is not None else None
    return state is not None and state.crash_signal is not None
