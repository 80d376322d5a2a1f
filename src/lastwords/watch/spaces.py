"""How full the file systems are that a job uses, asked so that one which does not answer cannot hold us up.

statvfs(2) on a dead file server returns when the server does, and a watcher that asked it in its own loop would stop
passing signals on. So a network's file system is asked by a thread, and not waited for twice. One in user space (FUSE)
is not asked at all: a request that its server has taken cannot even be killed, and we could not end before it is
answered (tests/watch/test_stalls.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lastwords.watch.proc import read_text

PATIENCE = 1.0
"""Seconds, once for each run."""
IN_USER_SPACE = ("fuse",)
OF_A_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "ceph",
    "lustre",
    "9p",
    "afs",
    "gpfs",
    "beegfs",
    "gfs",
    "ocfs",
    "pvfs",
    "orangefs",
)
"""How the names of their kinds begin."""


@dataclass(frozen=True, slots=True)
class Space:
    path: str
    free: int
    total: int
    free_files: int | None


@dataclass(frozen=True, slots=True)
class Spaces:
    found: tuple[Space, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    """Places that did not say it, or were not asked, with the kind of their file system."""


@dataclass(slots=True)
class _Asked:
    """A place, and the thread that waits for its answer."""

    path: str
    answer: list[Space] = field(default_factory=list)
    thread: threading.Thread | None = None

    def ask(self) -> None:
        thread = threading.Thread(target=self._ask, name="lastwords-space", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # No thread to be had (pids.max, RLIMIT_NPROC): then it is not asked.
            return
        self.thread = thread
        thread.join(PATIENCE)

    def _ask(self) -> None:
        self.answer.extend(_space(self.path))

    def is_waiting(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


_waiting: dict[str, _Asked] = {}
"""Asked before, and still without an answer."""


def look(paths: Sequence[str], kinds: Mapping[str, str] | None = None) -> Spaces:
    """`kinds`: of the file systems, by the place where each is mounted."""
    kinds = mounted() if kinds is None else kinds
    found: list[Space] = []
    unknown: list[tuple[str, str]] = []
    for path in paths:
        kind = kind_at(path, kinds)
        if kind.startswith(IN_USER_SPACE):
            unknown.append((path, kind))
        elif kind.startswith(OF_A_NETWORK):
            answer = _ask_patiently(path)
            found += answer
            unknown += [] if answer else [(path, kind)]
        else:
            found += _space(path)
    return Spaces(tuple(found), tuple(unknown))


@dataclass(frozen=True, slots=True)
class Mount:
    place: str
    kind: str
    source: str
    """A device, or a server and what it exports."""


def mounts_of(pid: int | str) -> dict[str, Mount]:
    """By their places, as that process sees them: `id parent device root place options … - kind source …`."""
    found = {}
    for line in read_text(f"/proc/{pid}/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        places, (kind, source, *_) = left.split(" ")[4:5], [*right.split(" "), "", ""]
        found.update({_unescaped(one): Mount(_unescaped(one), kind, _unescaped(source)) for one in places})
    return found


def mounted() -> dict[str, str]:
    """The kinds of the file systems, by the place where each is mounted."""
    return {place: mount.kind for place, mount in mounts_of("self").items()}


def _unescaped(place: str) -> str:
    return place.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def kind_at(path: str, kinds: Mapping[str, str]) -> str:
    """Of the nearest mount above; empty: not known. Looks at the words of the path alone."""
    while path not in kinds and path != (above := os.path.dirname(path)):
        path = above
    return kinds.get(path, "")


def _ask_patiently(path: str) -> list[Space]:
    asked = _waiting.pop(path, None)
    if asked is None or not asked.is_waiting():
        asked = _Asked(path)
        asked.ask()
    if asked.is_waiting():
        _waiting[path] = asked
    return asked.answer


def _space(path: str) -> list[Space]:
    """Empty: there is no such place."""
    try:
        found = os.statvfs(path)
    except OSError:
        return []
    free_files = found.f_favail if found.f_files else None
    return [Space(path, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, free_files)]
