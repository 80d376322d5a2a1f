"""What a job leaves behind in the machine: files of shared memory, semaphores, and processes.

Only what is proven to be the job's is named. A file's name may hold the pid of a process of the job (torch, joblib and
loky write it there); or such a process was seen with the file open; or the kernel says who made it (System V). Whatever
was there before the job, or is still in use, is not left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from lastwords.watch.proc import read_text, started
from lastwords.watch.processes import Process
from lastwords.watch.run_directory import SHARED_MEMORY, Identity, files_in, statuses_in
from lastwords.watch.shared_files import NewFile, SharedFiles, Shares

INTERVAL = 0.5
"""Seconds between two looks at who has what open."""
GROWING = 0.1
"""The same, while there are more files at each."""
MOST_OF_THE_TIME = 0.003
"""The part of one core that these looks may take, however many files there are."""
MOST_SEARCHES = 8
"""For who has a file open. One that nobody had open so often was left by whoever made it, or is a stranger's."""
BLOCK = 512
MOST_DESCRIPTORS = 4096
# Families of names that hold the pid of whoever made them: torch_4711_…, sem.loky-4711-…, joblib_memmapping_folder_4711_….
_WITH_PID = re.compile(r"(?:torch|sem\.loky|loky|joblib_memmapping_folder)[_-](\d{1,10})(?:[_-]|$)")
CLOCK_SLACK = 2.0
"""Seconds that a file may seem older than its maker: file systems keep coarser time."""


@dataclass(frozen=True, slots=True)
class Leftover:
    kind: str
    """`shared memory`, `semaphore`, `folder`, `segment` or `process`."""
    name: str
    """A path; for a segment its number, for a process its command."""
    size: int | None
    proof: str
    pid: int
    """Of whoever made it; for a process its own."""
    device: int = 0
    inode: int = 0
    started: int | None = None
    """For a process: clock ticks since the machine began."""


class Leftovers:
    def __init__(self, before: Mapping[str, Identity], place: str = SHARED_MEMORY) -> None:
        """`before` are the files that were there when the job had not begun."""
        self._place = place
        self._before = before
        self._known: dict[int, float] = {}
        """Every process of the job, and when it was first heard of."""
        self._holders: dict[Identity, int] = {}
        self._searches: dict[Identity, int] = {}
        self._shared = SharedFiles()
        self._users: set[int] = {os.getuid()}
        """Whose files can be the job's: on a host with many users most are not."""
        self._due = 0.0

    def begin(self, process: Process) -> None:
        self._known[process.pid] = process.announced
        with contextlib.suppress(OSError):
            self._users.add(os.stat(f"/proc/{process.pid}").st_uid)

    @property
    def timeout(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def look(self, living: Iterable[Process]) -> None:
        """Notes who has which new file open, and how many each has. Costs one listing while there is no new one."""
        begun = time.monotonic()
        if begun < self._due:
            return
        here, used = list(living), time.thread_time()
        new = [
            (name, (found.st_dev, found.st_ino), found.st_blocks * BLOCK)
            for name, found in statuses_in(self._place)
            if self._before.get(name) != (found.st_dev, found.st_ino) and found.st_uid in self._users
        ]
        self._find_holders({identity for name, identity, _ in new if not _WITH_PID.match(name)}, here)
        files = [NewFile(self._owner(name, identity), size) for name, identity, size in new]
        has_grown = self._shared.note(time.monotonic_ns(), files, [process.pid for process in here])
        took = time.thread_time() - used
        self._due = begun + max(GROWING if has_grown else INTERVAL, took / MOST_OF_THE_TIME)

    def shares_of(self, process: Process) -> Shares:
        """Its shared memory over time. To be asked once, at its end."""
        return self._shared.take(process.pid)

    def _find_holders(self, unknown: set[Identity], living: Iterable[Process]) -> None:
        self._searches = {one: self._searches.get(one, 0) + 1 for one in unknown - self._holders.keys()}
        unknown = {one for one, searches in self._searches.items() if searches <= MOST_SEARCHES}
        for process in living:
            if not unknown:
                return
            for identity in unknown & _open_in(process.pid, self._place):
                self._holders[identity] = process.pid
                unknown.discard(identity)

    def _owner(self, name: str, identity: Identity) -> int | None:
        match = _WITH_PID.match(name)
        return int(match[1]) if match is not None else self._holders.get(identity)

    def found(
        self, living: Iterable[Process] = (), orphans: Iterable[Process] | None = None
    ) -> list[Leftover]:
        """To be asked when the job has ended. `orphans` are those of the living that it has left behind."""
        used: set[Identity] = set()
        still_there = list(living)
        for process in still_there:
            used |= _open_in(process.pid, self._place)
        files = (one for one in self._files_of_ours() if (one.device, one.inode) not in used)
        named = still_there if orphans is None else orphans
        return [*files, *self._segments_of_ours(), *map(_orphan, named)]

    def _files_of_ours(self) -> Iterator[Leftover]:
        for name, identity in files_in(self._place):
            if self._before.get(name) == identity:
                continue
            path = os.path.join(self._place, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                maker, proof = self._maker(name, identity, status.st_ctime)
                if maker is not None:
                    yield Leftover(_kind(name, status.st_mode), path, status.st_size, proof, maker, *identity)

    def _maker(self, name: str, identity: Identity, made: float) -> tuple[int | None, str]:
        match = _WITH_PID.match(name)
        if match is not None:
            pid = int(match[1])
            if made >= self._known.get(pid, float("inf")) - CLOCK_SLACK:
                return pid, f"its name holds the number of pid {pid} of this job, and it is younger than that"
        holder = self._holders.get(identity)
        return holder, f"pid {holder} of this job had it open, and it was not there before"

    def _segments_of_ours(self) -> Iterator[Leftover]:
        for segment in _segments():
            begun = self._known.get(segment.maker)
            if begun is not None and segment.attached == 0 and segment.made >= begun - CLOCK_SLACK:
                proof = f"the kernel says that pid {segment.maker} of this job made it"
                yield Leftover("segment", str(segment.number), segment.size, proof, segment.maker)


def in_use(leftover: Leftover) -> bool:
    """Somebody of this machine has it open or mapped, as far as we may see."""
    wanted = (leftover.device, leftover.inode)
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    place = os.path.dirname(leftover.name)
    return any(wanted in _open_in(pid, place) or leftover.name in _maps(pid) for pid in pids)


def is_the_same(leftover: Leftover) -> bool:
    """What is there now is what was left there."""
    if leftover.kind == "process":
        return started(leftover.pid) == leftover.started
    if leftover.kind == "segment":
        return any((str(one.number), one.maker) == (leftover.name, leftover.pid) for one in _segments())
    try:
        found = os.lstat(leftover.name)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (leftover.device, leftover.inode)


def as_plain(leftover: Leftover) -> dict[str, str | int | None]:
    return asdict(leftover)


@dataclass(frozen=True, slots=True)
class _Segment:
    number: int
    size: int
    maker: int
    attached: int
    made: float


def _segments() -> list[_Segment]:
    """Lines of /proc/sysvipc/shm: key, number, permissions, size, maker, last user, attached, …, times of use and change."""
    found = []
    for line in read_text("/proc/sysvipc/shm").splitlines()[1:]:
        words = line.split()
        with contextlib.suppress(IndexError, ValueError):
            number, size, maker, attached = (int(words[place]) for place in (1, 3, 4, 6))
            found.append(_Segment(number, size, maker, attached, made=float(words[13])))
    return found


def _open_in(pid: int, place: str) -> set[Identity]:
    """Files below `place` that the process has open."""
    found: set[Identity] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:MOST_DESCRIPTORS]:
            link = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.readlink(link).startswith(f"{place}/"):
                    status = os.stat(link)
                    found.add((status.st_dev, status.st_ino))
    return found


def _maps(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return file.read().decode("utf-8", "replace")
    return ""


def _kind(name: str, mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "folder"
    return "semaphore" if name.startswith("sem.") else "shared memory"


def _orphan(process: Process) -> Leftover:
    command = read_text(f"/proc/{process.pid}/cmdline").replace("\0", " ").strip()
    proof = "it announced itself to this run, and lives on"
    return Leftover("process", command, None, proof, process.pid, started=process.started)
