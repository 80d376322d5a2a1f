"""Memory behind registers, and how freed memory looks."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastwords.evidence import box as raw
from lastwords.evidence.model import Fault, NativeFrame, Pointer
from lastwords.evidence.pointers import filling, pointers, words

BLOCK = 0x5581_A3C2_F340
LIBC = 0x7F90_8C01_E000
ARENA = LIBC + 0x1D3CC0


def looked_at(content: bytes, value: int = BLOCK, mapping: str | None = "[heap]") -> Pointer:
    fault = Fault(
        source="test", signal="SIGSEGV", code=1, registers={"rax": value}, stack_low=16, stack_high=32
    )
    pointed = {"rax": raw.Pointed(bytes=content.hex(), mapping=mapping, offset=16)}
    libc = NativeFrame(address=LIBC + 0x2724A, offset=0x2724A, library="/usr/lib/libc.so.6")
    found = pointers(raw.Box(pointed=pointed), fault, [libc])
    assert found is not None
    (one,) = found
    return one


def block(first: int, second: int) -> bytes:
    return struct.pack("<4Q", first, second, 0, 0)


@pytest.mark.parametrize(
    ("content", "freed"),
    [
        (block(BLOCK >> 12, 0x1234567890ABCDEF), "cache"),
        (block((BLOCK >> 12) ^ (BLOCK + 0x1000), 0x1234), "cache"),
        (block(ARENA, ARENA), "bin"),
        (block(ARENA, BLOCK + 0x5000), "bin"),
        (block(BLOCK - 0x5000, ARENA), "bin"),
        (block(ARENA, 0x7F00_0000_0000), None),
        (b"\xdd" * 32, "filled"),
        (b"\x5a" * 32, "filled"),
        (b"\xcd" * 32, None),  # never set, not freed
        (block(0, 0), None),
        (block(1, ARENA), None),
        (block(BLOCK + 0x1000, 0), None),  # a list of our own: pointers as they are
        (block(ARENA, ARENA + 16), None),  # two functions of the C library
        (b"", None),
    ],
)
def test_the_shape_of_freed_memory(content: bytes, freed: str | None):
    if content:
        assert looked_at(content).freed == freed


def test_blocks_are_aligned():
    assert looked_at(block((BLOCK + 8) >> 12, 0), value=BLOCK + 8).freed is None


def test_a_library_is_not_freed():
    assert looked_at(b"\xdd" * 32, mapping="/usr/lib/libc.so.6").freed is None


def test_the_stack_of_a_thread_is_known_by_its_limits():
    assert looked_at(bytes(32), value=24, mapping="anonymous").points_into == "[stack]"


def test_nothing_pointed_is_not_collected():
    fault = Fault(source="test", signal="SIGSEGV", code=1)
    assert pointers(raw.Box(), fault, []) is None


@pytest.mark.parametrize(
    ("word", "byte"),
    [
        (0xDDDDDDDDDDDDDDDD, 0xDD),
        (0xDDDDDDDDDDDDDDED, 0xDD),
        (0x5A5A5A5A5A58, None),
        (0x4141414141414141, None),
        (0, None),
    ],
)
def test_filling_bytes(word: int, byte: int | None):
    assert filling(word) == byte


@given(st.text(max_size=80))
def test_any_text_is_read(content: str):
    assert all(0 <= word < 1 << 64 for word in words(content))
