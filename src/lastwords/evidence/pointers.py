"""What the registers point at: which part of the process, and whether that memory had been given back.

glibc writes into a block that is freed, so that freed memory has a shape. In the lists of small blocks the first
word is the next block's address, mixed with this block's own (`own >> 12 ^ next`); in those of large blocks the
first two words point into the C library, or one of them does and the other at the next such block. Debugging allocators fill it with one byte.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import PurePath

from lastwords.evidence import box as raw
from lastwords.evidence.model import Fault, NativeFrame, Pointer

SOURCE = "the crash handler in the process, 32 bytes behind each register"
FILLINGS = {
    0xDD: "freed memory under PYTHONMALLOC=debug and other debugging allocators",
    0x5A: "freed memory under jemalloc",
    0xE5: "freed memory under mozjemalloc",
    0x6B: "freed memory under allocators that follow the kernel's",
    0xFD: "the fence around a block under PYTHONMALLOC=debug",
    0xCD: "memory that was never set under PYTHONMALLOC=debug",
    0xA5: "memory that was never set under jemalloc",
}
"""Bytes that allocators fill memory with, and what they mean by them."""
FREED = (0xDD, 0x5A, 0xE5, 0x6B)
SMALLEST_ADDRESS = 1 << 20
NEIGHBOURS = 256 << 20
"""Blocks of one list are no further apart than a heap is large."""
LARGEST_LIBC = 4 << 20
_LIBC = re.compile(r"libc[-.]")


def pointers(box: raw.Box, fault: Fault, frames: Iterable[NativeFrame]) -> tuple[Pointer, ...] | None:
    if not box.pointed:
        return None
    libc = _start_of_libc(frames)
    named = ((name, box.pointed[name]) for name in fault.registers if name in box.pointed)
    return tuple(_pointer(name, pointed, fault, libc) for name, pointed in named if pointed.bytes)


def _pointer(register: str, pointed: raw.Pointed, fault: Fault, libc: int | None) -> Pointer:
    value = fault.registers[register]
    into = _into(value, pointed, fault)
    may_be_freed = into in (None, "[heap]", "anonymous")
    return Pointer(
        source=SOURCE,
        register=register,
        value=value,
        bytes=pointed.bytes,
        points_into=into,
        offset=pointed.offset,
        freed=_freed(value, words(pointed.bytes), libc) if may_be_freed else None,
    )


def words(content: str) -> tuple[int, ...]:
    """The bytes as numbers of 64 bits."""
    try:
        found = bytes.fromhex(content)
    except ValueError:
        return ()
    return struct.unpack(f"<{len(found) // 8}Q", found[: len(found) // 8 * 8])


def filling(word: int) -> int | None:
    """The byte that all of `word` consists of, or nearly all: code adds an offset to what it read."""
    high = word >> 16
    byte = high & 0xFF
    return byte if byte in FILLINGS and high == int.from_bytes(bytes([byte]) * 6, "big") else None


def _into(value: int, pointed: raw.Pointed, fault: Fault) -> str | None:
    """The stacks of threads have no name of their own."""
    if fault.stack_low and fault.stack_high and fault.stack_low <= value < fault.stack_high:
        return "[stack]"
    return pointed.mapping or None


def _start_of_libc(frames: Iterable[NativeFrame]) -> int | None:
    starts = (
        frame.address - frame.offset
        for frame in frames
        if frame.library and frame.offset is not None and _LIBC.match(PurePath(frame.library).name)
    )
    return next(starts, None)


def _freed(value: int, content: tuple[int, ...], libc: int | None) -> str | None:
    if len(content) < 2 or value % 16 or value < SMALLEST_ADDRESS:
        return None
    first, second = content[:2]
    if filling(first) in FREED and filling(second) in FREED:
        return "filled"
    if libc is not None and _is_in_a_bin(value, first, second, libc):
        return "bin"
    return "cache" if _is_in_a_cache(value, first) else None


def _is_in_a_bin(value: int, first: int, second: int, libc: int) -> bool:
    """Alone in its list it points at the list's head twice, first or last in it once, and at its neighbour."""
    at_head = [0 < word - libc < LARGEST_LIBC for word in (first, second)]
    if all(at_head):
        return first == second
    neighbour = second if at_head[0] else first
    return any(at_head) and neighbour % 16 == 0 and abs(neighbour - value) < NEIGHBOURS


def _is_in_a_cache(value: int, first: int) -> bool:
    following = first ^ (value >> 12)
    if following == 0:
        return True
    return following % 16 == 0 and abs(following - value) < NEIGHBOURS
