"""A file system whose server takes every request for data and does not answer, like a file server that has died; or
answers late, like one that is slow.

It speaks the kernel's FUSE protocol itself (include/uapi/linux/fuse.h), in a thread: there is one file, `data`, and
whoever reads it sleeps in state D until `release()`, or for a moment.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Collection
from enum import IntEnum
from functools import cache
from pathlib import Path

ROOT, FILE = 1, 2
SIZE = 1 << 20
VERSION = (7, 31)
FOR_EVER = 3600
ASYNC_READ = 1
MS_NODEV_NOSUID = 6
MNT_FORCE_DETACH = 3
LARGEST_REQUEST = SIZE + (1 << 16)
HEADER = struct.Struct("<IIQQIIIHH")
"""Of a request: length, what is asked, its number, the file, and who asks."""
READING = struct.Struct("<QQI")
"""File, offset, how much."""


class Ask(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    OPEN = 14
    READ = 15
    STATFS = 17
    RELEASE = 18
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    RELEASEDIR = 29
    BATCH_FORGET = 42


STALLED = (Ask.READ, Ask.STATFS)
WITHOUT_ANSWER = (Ask.FORGET, Ask.BATCH_FORGET)


class Unmountable(Exception):
    """Not here: no /dev/fuse, or no right to mount."""


@cache
def refusal() -> str | None:
    """Why none can be mounted here, or None: tried once."""
    try:
        with tempfile.TemporaryDirectory(prefix="zoo-disk-", ignore_cleanup_errors=True) as directory:
            Mount(Path(directory), late=0.0).close()
    except Unmountable as error:
        return str(error)
    return None


class Mount:
    def __init__(self, place: Path, late: float | None = None, stalled: Collection[Ask] = STALLED) -> None:
        """`late`: seconds until each part of the file comes; None: what is in `stalled` is not answered before
        `release()`.
        """
        self.place = place
        self.file = place / "data"
        self._is_released = late is not None
        self._late = late or 0.0
        self._stalled = stalled
        self._held: list[bytes] = []
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._mount()
        threading.Thread(target=self._serve, daemon=True).start()

    def release(self) -> None:
        """The server is back, and answers what it was asked."""
        with self._lock:
            self._is_released = True
            for request in self._held:
                self._answer(request)

    def close(self) -> None:
        """Whoever still waits gets an error."""
        self._libc.umount2(os.fsencode(self.place), MNT_FORCE_DETACH)

    def _mount(self) -> int:
        try:
            descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Unmountable(f"/dev/fuse: {error.strerror}") from None
        options = f"fd={descriptor},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
        place = os.fsencode(self.place)
        if self._libc.mount(b"stalled", place, b"fuse", MS_NODEV_NOSUID, options.encode()) != 0:
            os.close(descriptor)
            raise Unmountable(f"mount: {os.strerror(ctypes.get_errno())}")
        return descriptor

    def _serve(self) -> None:
        try:
            while True:
                self._take(os.read(self._descriptor, LARGEST_REQUEST))
        except OSError:  # ENODEV: it is unmounted.
            os.close(self._descriptor)

    def _take(self, request: bytes) -> None:
        asked = HEADER.unpack_from(request)[1]
        if asked in WITHOUT_ANSWER:
            return
        if asked == Ask.READ:
            time.sleep(self._late)
        with self._lock:
            if asked in self._stalled and not self._is_released:
                self._held.append(request)
            else:
                self._answer(request)

    def _answer(self, request: bytes) -> None:
        _, asked, number, node, *_ = HEADER.unpack_from(request)
        body = _body(asked, node, request[HEADER.size :])
        error, said = (-errno.ENOSYS, b"") if body is None else (0, body)
        try:
            os.write(self._descriptor, struct.pack("<IiQ", 16 + len(said), error, number) + said)
        except FileNotFoundError:  # Whoever asked was killed meanwhile.
            pass


def _body(asked: int, node: int, request: bytes) -> bytes | None:
    """None: this file system knows no such thing."""
    match asked:
        case Ask.INIT:
            return struct.pack("<IIIIHHII", *VERSION, SIZE, ASYNC_READ, 12, 10, SIZE, 1) + bytes(32)
        case Ask.LOOKUP:
            return struct.pack("<QQQQII", FILE, 0, FOR_EVER, FOR_EVER, 0, 0) + _attributes(FILE)
        case Ask.GETATTR:
            return struct.pack("<QII", FOR_EVER, 0, 0) + _attributes(node)
        case Ask.OPEN | Ask.OPENDIR:
            return struct.pack("<QII", 1, 0, 0)
        case Ask.READ:
            return bytes(READING.unpack_from(request)[2])
        case Ask.STATFS:
            return bytes(80)
        case Ask.RELEASE | Ask.RELEASEDIR | Ask.FLUSH:
            return b""
    return None


def _attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
    size, links, block = SIZE, 1, 4096
    return struct.pack("<6Q10I", node, size, size // 512, *[0] * 6, mode, links, 0, 0, 0, block, 0)
