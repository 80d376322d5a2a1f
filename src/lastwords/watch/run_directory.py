"""The place of one run: `HOME/runs/<stamp>-<pid>/`, with a box for each process and the socket `watcher`."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from lastwords import _native
from lastwords.record.home import new_run_directory

SOCKET = "watcher"
# Forked at once, all workers of a job knock together; the kernel cuts this to net.core.somaxconn.
BACKLOG = 4096
# What one box reserves on disk when it is made, and a little more.
ROOM_FOR_A_BOX = 512 << 10
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # the place itself, not a file of ours in it
MOST_FILES = 4096

Identity = tuple[int, int]
"""Device and inode: a name can be used again, these two together cannot while the file is there."""


class RunDirectoryRefused(Exception):
    """Nothing can be recorded here; the text says why. The job must run on all the same."""


class RunDirectory:
    def __init__(self, home: str) -> None:
        """Raises RunDirectoryRefused."""
        # Now, before the job begins: what is new later may be its own.
        self.shared_memory = dict(files_in(SHARED_MEMORY))
        self.memory_kills = _native.oom_kills(os.getpid())
        try:
            self.path = new_run_directory(os.path.abspath(home))
        except OSError as error:
            raise RunDirectoryRefused(f"{home}: {error.strerror}") from error
        try:
            _make_sure_there_is_room(self.path)
            self.listener = _listen(self.path)
        except OSError as error:
            _remove(self.path)
            raise RunDirectoryRefused(f"{home}: {error.strerror}") from error

    def box(self, name: str) -> str | None:
        """The path of the box that a process announced; None for a name that cannot be one."""
        if not name.endswith(".box") or "/" in name or "\0" in name:
            return None
        return os.path.join(self.path, name)

    def boxes(self) -> list[str]:
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        return sorted(os.path.join(self.path, name) for name in names if name.endswith(".box"))

    def close(self, *, keep_boxes: bool) -> None:
        """Processes that outlive the run go on writing their boxes: those stay where they are."""
        self.listener.close()
        if keep_boxes:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.path, SOCKET))
        else:
            _remove(self.path)


def files_in(place: str) -> Iterator[tuple[str, Identity]]:
    for name, found in statuses_in(place):
        yield name, (found.st_dev, found.st_ino)


def statuses_in(place: str) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for _, entry in zip(range(MOST_FILES), entries, strict=False):
            with contextlib.suppress(OSError):
                yield entry.name, entry.stat(follow_symlinks=False)


def forget_box(path: str) -> None:
    """And the snapshot beside it, if there is one."""
    for name in (path, f"{path}.probe"):
        with contextlib.suppress(OSError):
            os.unlink(name)


def _remove(path: str) -> None:
    """It is flat. Something that is not ours to remove stays, and the directory with it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(path, name))
        os.rmdir(path)


def _make_sure_there_is_room(path: str) -> None:
    """A full disk would refuse every single box later; better one warning now."""
    trial = os.path.join(path, "trial")
    descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, ROOM_FOR_A_BOX)
    finally:
        os.close(descriptor)
        os.unlink(trial)


def _listen(path: str) -> socket.socket:
    """By way of /proc/self/fd, because a socket's path may have 107 bytes and a home directory more."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{place}/{SOCKET}")
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(place)
    return listener
