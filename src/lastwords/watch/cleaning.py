"""Remembers what jobs left behind, `HOME/leftovers/<time>-<pid>.json`, and removes it when somebody asks.

What is remembered is looked at again before it is touched: the same file, unused, or the same process still.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lastwords.watch import run_directory
from lastwords.watch.leftovers import Leftover, as_plain, in_use, is_the_same
from lastwords.watch.proc import stat_fields

LARGEST_NOTE = 4 << 20
PATIENCE = 5.0
"""Seconds that a process gets after SIGTERM, before SIGKILL."""
GLANCE = 0.02
IPC_RMID = 0


@dataclass(frozen=True, slots=True)
class Note:
    """One run, and what it left behind."""

    path: str
    leftovers: tuple[Leftover, ...]


def keep(home: str, found: Sequence[Leftover]) -> None:
    """Whatever goes wrong here, the job has ended as it has: it is only not remembered."""
    if not found:
        return
    place = os.path.join(home, "leftovers")
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.json"
    with contextlib.suppress(OSError):
        os.makedirs(place, mode=0o700, exist_ok=True)
        descriptor = os.open(os.path.join(place, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump([as_plain(one) for one in found], file)


def notes(home: str) -> Iterator[Note]:
    """Oldest first. What cannot be read is no note."""
    place = os.path.join(home, "leftovers")
    try:
        names = sorted(name for name in os.listdir(place) if name.endswith(".json"))
    except OSError:
        return
    for name in names:
        path = os.path.join(place, name)
        with contextlib.suppress(OSError, ValueError, TypeError), open(path, "rb") as file:
            yield Note(path, tuple(Leftover(**one) for one in json.loads(file.read(LARGEST_NOTE))))


def forget(note: Note) -> None:
    with contextlib.suppress(OSError):
        os.unlink(note.path)


def remove(leftover: Leftover) -> str | None:
    """None: it is gone now, or was before. Otherwise why it stays."""
    if not is_the_same(leftover):
        return None
    if leftover.kind == "process":
        return _end(leftover)
    if leftover.kind == "segment":
        return _remove_segment(int(leftover.name))
    if os.path.dirname(leftover.name) != run_directory.SHARED_MEMORY:
        return "it is not where jobs leave things"  # A note is a file: somebody may have written another into it.
    if in_use(leftover):
        return "a process uses it"
    try:
        shutil.rmtree(leftover.name) if leftover.kind == "folder" else os.unlink(leftover.name)
    except OSError as error:
        return error.strerror or "it cannot be removed"
    return None


def _end(leftover: Leftover) -> str | None:
    """Through a pidfd, so that nobody else is hit whose number is the same by then."""
    try:
        descriptor = os.pidfd_open(leftover.pid)
    except OSError as error:
        return None if not is_the_same(leftover) else error.strerror
    try:
        if not is_the_same(leftover):
            return None
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(descriptor, number)
            if _is_gone(leftover):
                return None
    except OSError as error:
        return error.strerror
    finally:
        os.close(descriptor)
    return "it does not end"


def _is_gone(leftover: Leftover) -> bool:
    until = time.monotonic() + PATIENCE
    while is_the_same(leftover) and not _is_zombie(leftover.pid):
        if time.monotonic() > until:
            return False
        time.sleep(GLANCE)
    return True


def _is_zombie(pid: int) -> bool:
    return stat_fields(pid)[:1] == ["Z"]


def _remove_segment(number: int) -> str | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.shmctl(number, IPC_RMID, None) == 0:
        return None
    return os.strerror(ctypes.get_errno())
