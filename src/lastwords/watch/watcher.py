"""Who of the job is there, and who has ended: announcements, pidfds and our own children, by one epoll."""

from __future__ import annotations

import os
import resource
import select
import socket
import time
from collections.abc import Iterable, Sequence

from lastwords.watch import announcements, last_state, machine, probes, status, witnesses
from lastwords.watch.curves import Curves, Points
from lastwords.watch.ending import Ended
from lastwords.watch.leftovers import Leftovers
from lastwords.watch.memory_kills import MemoryKillCounters
from lastwords.watch.proc import zombie_status
from lastwords.watch.processes import Process, Processes
from lastwords.watch.run_directory import RunDirectory, forget_box

GLANCE = 0.25
"""Seconds between two looks at those that have no pidfd: kernels before 5.3, and such as gVisor's."""

Ready = Sequence[tuple[int, int]]
"""What epoll returns: descriptors and their events."""


class Watcher:
    def __init__(self, command: int, directory: RunDirectory | None, epoll: select.epoll) -> None:
        self.command = command
        self.command_status: int | None = None
        self.living = Processes(watcher=os.getpid())
        self._directory = directory
        self._epoll = epoll
        self._connections: dict[int, socket.socket] = {}
        self._watched: dict[int, Process] = {}
        self._unheard: set[Process] = set()
        """Without a pidfd, so that nothing tells us when they end."""
        self._zombies: set[int] = set()
        """Pids that have ended for us, and that their parents may still leave to us."""
        self._seen_boxes: set[str] = set()
        self._counters = MemoryKillCounters(directory.memory_kills if directory is not None else None)
        self._counters.begin_child(command)
        self._curves = Curves()
        self._bell: int | None = None
        self._beginnings: dict[int, machine.Beginning] = {}
        self._noticed_ns = 0
        self.leftovers = Leftovers(directory.shared_memory if directory is not None else {})
        self.witnesses = witnesses.chosen() if directory is not None else witnesses.Witnesses("none")
        if directory is not None:
            epoll.register(directory.listener.fileno(), select.EPOLLIN)
            if self.witnesses.descriptor is not None:
                epoll.register(self.witnesses.descriptor, select.EPOLLIN)
            _raise_descriptor_limit()

    def ended(self, ready: Ready) -> list[Ended]:
        """All that ended since the last call, workers before their parents."""
        ended: list[Ended] = []
        found = self._look(ready)
        while found:
            ended += found
            # A worker that announced itself and died while we looked comes before its parent, too.
            found = self._look(self._epoll.poll(0))
        return sorted(ended, key=lambda one: -len(one.process.ancestors))

    def _look(self, ready: Ready) -> list[Ended]:
        self._noticed_ns = time.monotonic_ns()
        # Looked up before anything is opened or closed: descriptors are numbers, and numbers are used again.
        gone = [self._watched[descriptor] for descriptor, _ in ready if descriptor in self._watched]
        descriptors = {descriptor for descriptor, _ in ready}
        if self._bell in descriptors:
            self._take_last_looks()
        if self.witnesses.descriptor in descriptors:
            self.witnesses.hear()
        self._take_announcements()
        self.leftovers.look(self.living)
        gone += [process for process in self._unheard if witnesses.has_ended(process)]
        return [*self._reap(), *self._learn(gone)]

    @property
    def glance(self) -> float | None:
        """Seconds after which we must look again although nobody told us anything."""
        if not len(self.living):
            return None
        return min(self.leftovers.timeout, GLANCE) if self._unheard else self.leftovers.timeout

    def memory_of(self, process: Process) -> Points:
        """So far, of one that lives."""
        return self._curves.so_far(process.pid)

    def beginning_of(self, process: Process) -> machine.Beginning | None:
        return self._beginnings.get(process.pid)

    def is_anybody_left(self) -> bool:
        """Also an orphan that has only just been forked, and has had no time yet to announce itself."""
        if len(self.living):
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def never_announced(self) -> list[Ended]:
        """Boxes whose process nobody told us of: the queue was full, or it died first. To be asked at the end."""
        boxes = self._directory.boxes() if self._directory is not None else []
        found = [self._process_of(box) for box in boxes if box not in self._seen_boxes]
        unknown = status.Status(None, "unknown")
        return [self._end(process, unknown) for process in found if process and not _lives(process.pid)]

    # Who is there.

    def _take_announcements(self) -> None:
        if self._directory is None:
            return
        for connection in announcements.accept_all(self._directory.listener):
            self._connections[connection.fileno()] = connection
            self._epoll.register(connection.fileno(), select.EPOLLIN)
        for descriptor, connection in list(self._connections.items()):
            try:
                said = announcements.receive(connection)
            except BlockingIOError:
                continue
            self._epoll.unregister(descriptor)
            del self._connections[descriptor]
            connection.close()
            if said is not None:
                self._begin(said, self._directory.box(said.box_name))

    def _begin(self, said: announcements.Announcement, box: str | None) -> None:
        process, replaced = self.living.add(said, box)
        if box is not None:
            self._seen_boxes.add(box)
        if replaced is not None:
            self._forget(replaced)
        if process.pidfd is not None:
            self._watched[process.pidfd] = process
            self._epoll.register(process.pidfd, select.EPOLLIN)
        else:
            self._unheard.add(process)
        self.leftovers.begin(process)
        self._curves.begin(process)  # First: it also notes when the process ends.
        self._counters.begin(process.pid)
        self._beginnings[process.pid] = machine.begin(process.pid)
        self._listen_for_alarms()

    def _listen_for_alarms(self) -> None:
        if self._bell is None and self._curves.bell is not None:
            self._bell = self._curves.bell
            self._epoll.register(self._bell, select.EPOLLIN)

    def _take_last_looks(self) -> None:
        """A kill for want of memory leaves no stacks: whoever is near it is asked for them before."""
        for pid in self._curves.alarms():
            process = self.living.get(pid)
            state = probes.state_of(process) if process is not None else None
            if process is not None and state is not None:
                probes.ask(process, state)

    def _forget(self, replaced: Process) -> None:
        """The same process began a new box after an exec: the old one tells of a program that is no more."""
        self._unwatch(replaced)
        replaced.close()
        if replaced.box is not None:
            forget_box(replaced.box)

    def _unwatch(self, process: Process) -> None:
        self._unheard.discard(process)
        if process.pidfd is not None and self._watched.pop(process.pidfd, None) is not None:
            self._epoll.unregister(process.pidfd)

    # Who has ended.

    def _reap(self) -> list[Ended]:
        """Our own children: the command, and orphans that became ours."""
        ended: list[Ended] = []
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return ended
            if found is None:
                return ended
            self._noticed_ns = time.monotonic_ns()
            # It may have announced itself and died since we last looked; its pid is its own until waitpid.
            self._take_announcements()
            pid, raw = os.waitpid(found.si_pid, 0)
            if pid == self.command:
                self.command_status = raw
            process = self.living.get(pid)
            if process is None and pid in self._zombies:
                self._zombies.discard(pid)
                continue
            ended.append(self._end(process or self._unannounced(pid), status.from_parent(raw)))

    def _learn(self, gone: Iterable[Process]) -> list[Ended]:
        """Children of others, by their pidfds."""
        ended = []
        for process in gone:
            if self.living.get(process.pid) is not process:  # It was ours, and is reaped.
                continue
            known = self.witnesses.of_ended(process)
            if known is None:
                if process.pidfd is not None:
                    self._epoll.modify(process.pidfd, 0)  # From here on only its reaping is news.
                continue
            if known.source != "pidfd" and zombie_status(process.pid) is not None:
                self._zombies.add(process.pid)
            ended.append(self._end(process, known))
        return ended

    def _end(self, process: Process, known: status.Status) -> Ended:
        self._unwatch(process)
        self.living.remove(process)
        state = last_state.read(process.box) if process.box is not None else None
        if state is not None and state.parent:
            self.living.place_below(process, state.parent)
        seen, beginning = self._curves.end(process.pid), self._beginnings.pop(process.pid, None)
        if state is not None and state.cgroup is not None:
            beginning = machine.as_born(beginning, state.cgroup, state.born_ns)
            self._counters.as_born(process.pid, state.cgroup)
        if seen.moved_to is not None:
            self._counters.move(process.pid, seen.moved_to)
            beginning = machine.moved(beginning, seen.moved_to)
        return Ended(
            process=process,
            status=status.with_box(known, state),
            state=state,
            time=time.time(),
            noticed_ns=min(self._noticed_ns, seen.ended_ns or self._noticed_ns),
            is_command=process.pid == self.command,
            memory_kills=self._counters.end(process.pid),
            seen=seen,
            probe=probes.complete(process.box) if process.box is not None else None,
            beginning=beginning,
            shares=self.leftovers.shares_of(process),
        )

    def _unannounced(self, pid: int) -> Process:
        """Mostly a program that is no Python; or a Python one that found the queue full."""
        if self._directory is not None:
            for box in self._directory.boxes():
                process = self._process_of(box) if box not in self._seen_boxes else None
                if process is not None and process.pid == pid:
                    return process
        return Process(pid=pid, own_pid=pid)

    def _process_of(self, box: str) -> Process | None:
        state = last_state.read(box)
        if state is None:
            return None
        self._seen_boxes.add(box)
        return Process(pid=state.pid, own_pid=state.pid, box=box)


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _raise_descriptor_limit() -> None:
    """One descriptor for each process of the job. Called after the command has inherited its own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
