"""A few seconds of writing patterns into free memory and reading them back: does this machine keep what it is given?

An error is proof of failing hardware: nothing else changes memory that only we have. No error proves little: a part of
the memory was looked at, for a moment, through the caches, and bits that flip do so rarely.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator

from lastwords.evidence.model import MemoryTest

SECONDS = 3.0
BLOCK = 8 << 20
"""Larger than the nearer caches of most CPUs, so that reading goes to memory."""
MOST = 2 << 30
SHARE = 4
"""Of the memory that is free, one part in so many is taken: the jobs of others go on."""
PATTERNS = (0x00, 0xFF, 0x55, 0xAA, 0x33, 0xCC, 0x0F, 0xF0)
MOST_ERRORS = 16
SOURCE = "lastwords explain --memtest"


def available(path: str = "/proc/meminfo") -> int:
    """Bytes that can be had without pushing anybody out; 0: not known."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name == "MemAvailable":
                    return int(rest.split()[0]) << 10
    except (OSError, ValueError, IndexError):
        return 0
    return 0


def memory_test(
    seconds: float = SECONDS,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    read: Callable[[mmap.mmap], bytes] = lambda block: block[:],
) -> MemoryTest:
    """`read` is how a block is read back: a test puts a bad memory in its place."""
    room = min(MOST, available() // SHARE) if most is None else most
    begun, blocks = clock(), list[mmap.mmap]()
    wrong: list[str] = []
    passes = 0
    try:
        while not _is_over(clock, begun, seconds) and (len(blocks) + 1) * BLOCK <= room:
            blocks.append(mmap.mmap(-1, BLOCK))
            blocks[-1].write(_content(PATTERNS[0], len(blocks) - 1))
        for pattern in _patterns(clock, begun, seconds):
            passes += 1
            for place, block in enumerate(blocks):
                block[:] = _content(pattern, place)
            for place, block in enumerate(blocks):
                wrong.extend(_differences(read(block), _content(pattern, place), place))
                if _is_over(clock, begun, 2 * seconds):
                    break
    finally:
        for block in blocks:
            block.close()
    return MemoryTest(
        source=SOURCE,
        tested=len(blocks) * BLOCK,
        passes=passes,
        seconds=round(clock() - begun, 3),
        errors=len(wrong),
        examples=tuple(wrong[:MOST_ERRORS]),
    )


def _is_over(clock: Callable[[], float], begun: float, seconds: float) -> bool:
    return clock() - begun >= seconds


def _patterns(clock: Callable[[], float], begun: float, seconds: float) -> Iterator[int]:
    """At least one, then as many as there is time for."""
    yield PATTERNS[0] ^ 0xA5
    while not _is_over(clock, begun, seconds):
        for pattern in PATTERNS:
            if _is_over(clock, begun, seconds):
                return
            yield pattern


def _content(pattern: int, place: int) -> bytes:
    """Each block differs from its neighbours: an address line that fails shows as another block's content."""
    return bytes([pattern ^ (place * 37 & 0xFF)]) * BLOCK


def _differences(found: bytes, wanted: bytes, place: int) -> Iterator[str]:
    if found == wanted:
        return
    shown = 0
    for at, (got, expected) in enumerate(zip(found, wanted, strict=False)):
        if got != expected:
            yield f"block {place}, byte {at:#x}: wrote {expected:#04x}, read {got:#04x}"
            shown += 1
            if shown >= MOST_ERRORS:
                return
