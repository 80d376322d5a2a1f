"""Logs as they are kept: rotated ones are compressed, and that of a job which was killed may end in the middle."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

Found = TypeVar("Found")
Packed = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile

PIECE = 256 << 10
LONGEST_MARK = 8
KINDS: dict[bytes, Callable[[Any], Packed]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""Any of them asks a file for `read` alone, as long as nobody goes back in it."""
TORN = (EOFError, OSError, zlib.error, lzma.LZMAError)
OTHERS = {
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "zstdcat {} | lastwords explain -"),
    b"\x04\x22\x4d\x18": ("compressed by lz4", "lz4cat {} | lastwords explain -"),
    b"PK\x03\x04": ("a zip archive", "unzip -p {} | lastwords explain -"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z e -so {} | lastwords explain -"),
}
BINARY = {b"\x7fELF": "a core file or a program", b"LASTWORD": "a black box"}
"""By their first bytes, too. Those that are not compressed are known before anybody takes them for a log."""


class UnreadableLog(ValueError):
    """It is no text, and cannot be made one here. `reason` is for the user; `then` is what to type, with {} for the file."""

    def __init__(self, name: str, reason: str, then: str = "") -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason
        self.then = then


class Unpacked:
    """Read like the file that it is made of, which may be a pipe; whatever is compressed comes as text."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        again = _Again(file)
        opens = _known(KINDS, again.head)
        self._packed = None if opens is None else opens(again)
        self._file = again
        self._rest = b""
        self.is_torn = False
        if (other := _known(OTHERS, again.head)) is not None:
            what, then = other
            raise UnreadableLog(name, f"it is {what}, which is not unpacked here", then)
        if self._packed is not None:
            self._rest = self._read(LONGEST_MARK)
            if (what_else := _known(BINARY, self._rest)) is not None:
                raise UnreadableLog(name, f"what is compressed in it is {what_else}: unpack it first")

    def read(self, size: int) -> bytes:
        if self._packed is None:
            return self._file.read(size)
        rest, self._rest = self._rest, b""
        return rest + self._read(size - len(rest))

    def _read(self, size: int) -> bytes:
        """Piece by piece: where it breaks off, what has been unpacked before is kept."""
        assert self._packed is not None
        pieces = []
        while size > 0 and not self.is_torn:
            try:
                piece = self._packed.read1(min(size, PIECE))
            except TORN as error:
                if isinstance(error, OSError) and error.errno is not None:  # of the disk
                    raise
                self.is_torn = True
                break
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


class _Again:
    """A file whose first bytes have been looked at."""

    def __init__(self, file: BinaryIO) -> None:
        self.head = self._unread = file.read(LONGEST_MARK)
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not self._unread:
            return self._file.read(size)
        if 0 <= size <= len(self._unread):
            found, self._unread = self._unread[:size], self._unread[size:]
            return found
        found, self._unread = self._unread, b""
        return found + self._file.read(size - len(found) if size >= 0 else -1)


def _known(marks: dict[bytes, Found], head: bytes) -> Found | None:
    return next((found for mark, found in marks.items() if head.startswith(mark)), None)
