"""Takes what processes of the job say when they begin: "here I am, this is my box, this is my pidfd".

The format is that of crates/blackbox/src/announce.rs: four bytes of pid, the name of the box, one descriptor.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

PID = struct.Struct("<I")
CREDENTIALS = struct.Struct("3i")
LONGEST_MESSAGE = 512
# One is sent. Room for more, so that none of a strange message stays open: all are closed but the first.
MOST_DESCRIPTORS = 8


@dataclass(frozen=True, slots=True)
class Announcement:
    pid: int
    """As we see it."""
    own_pid: int
    """As it sees itself: another number inside a PID namespace."""
    box_name: str
    """Empty when the process could not make a box."""
    pidfd: int | None


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Every connection that waits. The message may still be on its way."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # none left, or no descriptor left: the rest waits in the queue
            return
        connection.settimeout(0)
        yield connection


def receive(connection: socket.socket) -> Announcement | None:
    """Raises BlockingIOError when nothing has come yet. None: it hung up, or said something else."""
    try:
        message, control, _, _ = connection.recvmsg(
            LONGEST_MESSAGE, socket.CMSG_SPACE(MOST_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
        )
    except BlockingIOError:
        raise
    except OSError:
        return None
    descriptors = _descriptors(control)
    pidfd = descriptors.pop(0) if descriptors else None
    for other in descriptors:
        os.close(other)
    if len(message) < PID.size:
        if pidfd is not None:
            os.close(pidfd)
        return None
    own_pid = PID.unpack_from(message)[0]
    pid = _peer(connection) or own_pid
    if pidfd is None:
        pidfd = _open(pid)
    return Announcement(pid, own_pid, os.fsdecode(message[PID.size :]), pidfd)


def _descriptors(control: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def _peer(connection: socket.socket) -> int:
    """The pid of who connected, translated by the kernel into our PID namespace; 0 when it has none there."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    except OSError:
        return 0
    pid: int = CREDENTIALS.unpack(raw)[0]
    return pid


def _open(pid: int) -> int | None:
    """The process could not make a pidfd of itself (no descriptor left, perhaps): we try."""
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None
