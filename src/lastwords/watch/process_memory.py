"""The memory of another process, or of our own, through /proc: a wrong address is an error here and no crash.

Whoever may trace a process may read it: root, and the ancestors of a process of the same user. Reading can block as long
as the process waits for a page with the lock of its memory held: never read where somebody waits for us.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

WORD = struct.Struct("=Q")
LARGEST_ADDRESS = 1 << 62
SHORT_STEP = 256
"""A text is read in such steps: the page behind it may not be there."""


class Unreadable(Exception):
    """No such memory, not ours to read, or not what it should be."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """One line of /proc/PID/maps that has a file."""

    start: int
    end: int
    file: tuple[str, str]
    """Device and inode: the same for the same file, whatever path it is seen by."""
    path: str


def mapped_files(pid: int) -> Iterator[Mapped]:
    """`7f46-7f47 r--p 00000000 fe:00 326269   /usr/lib/libc.so.6`. Raises OSError."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split(None, 5)
            start, _, end = words[0].partition("-")
            if len(words) > 4 and words[4] != "0":
                yield Mapped(
                    int(start, 16),
                    int(end, 16),
                    (words[3], words[4]),
                    words[5].strip() if len(words) > 5 else "",
                )


@contextlib.contextmanager
def memory_of(pid: int) -> Iterator[Memory]:
    """Raises OSError where it may not be opened."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield Memory(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Memory:
    descriptor: int

    def read(self, address: int, size: int) -> bytes:
        """All of it, or Unreadable."""
        found = self._read(address, size)
        if len(found) != size:
            raise Unreadable
        return found

    def word(self, address: int) -> int:
        value: int = WORD.unpack(self.read(address, WORD.size))[0]
        return value

    def words(self, address: int, size: int) -> dict[int, int]:
        """By offset: as many of that many bytes as there are."""
        found = self._read(address, size)
        whole = len(found) - len(found) % WORD.size
        return {index * WORD.size: value for index, (value,) in enumerate(WORD.iter_unpack(found[:whole]))}

    def text(self, address: int, longest: int) -> str:
        """Up to the first zero byte, as C has it."""
        found = b""
        while b"\0" not in found and len(found) < longest:
            # Not beyond the page in one step: the next may not be there.
            step = min(SHORT_STEP, longest - len(found), 4096 - (address + len(found)) % 4096)
            found += self.read(address + len(found), step)
        return found.partition(b"\0")[0].decode("utf-8", "replace")

    def _read(self, address: int, size: int) -> bytes:
        if not 0 < address < LARGEST_ADDRESS:
            raise Unreadable
        with contextlib.suppress(OSError):
            return os.pread(self.descriptor, size, address)
        raise Unreadable
