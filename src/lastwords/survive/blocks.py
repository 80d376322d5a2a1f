"""Large things in shared memory: one side writes them, the other reads them where they lie.

The writer finds room (`Blocks`), the reader borrows (`Lending`): what it unpickles points straight into the
memory, and the block comes back to the writer when the reader's last reference to it is gone.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap

ALIGNMENT = 64
"""Of a cache line, and what vector instructions ask for."""
PAGE = 4096
WORTH_RELEASING = 1 << 20
"""Bytes that have become free: below, asking the kernel to take them costs more than they are worth."""


class Blocks:
    """Room in one region, first fit from the bottom: what was used is used again while it is warm.

    Fresh pages of a memfd cost a page fault and a zeroing for each 4 KiB, about as much as the copy itself.
    """

    def __init__(self, memory: mmap.mmap, start: int, length: int, budget: int) -> None:
        self._memory = memory
        self._view = memoryview(memory)
        self._start = start
        self._free_at: list[int] = [start]
        self._free_length: list[int] = [length]
        self._taken: dict[int, int] = {}
        self._reached = start
        self._freed = 0
        self.used = 0
        self.budget = budget

    def put(self, data: bytes | memoryview) -> int | None:
        """Copies it in; where it lies, or None if the budget is spent. A single one may be larger than that."""
        at = self.take(len(data))
        if at is not None:
            self._view[at : at + len(data)] = data
        return at

    def take(self, length: int, *, is_warm: bool = False) -> int | None:
        """`is_warm`: only where something has lain before, and its pages are there."""
        length = -(-max(length, 1) // ALIGNMENT) * ALIGNMENT
        if self._taken and self.used + length > self.budget:
            return None
        for index, free in enumerate(self._free_length):
            if free >= length:
                if is_warm and self._free_at[index] + length > self._reached:
                    return None  # and those behind it lie higher still
                return self._cut(index, length)
        return None

    def view(self, at: int, length: int) -> memoryview:
        return self._view[at : at + length]

    def give_back(self, at: int) -> None:
        length = self._taken.pop(at)
        self.used -= length
        self._freed += length
        index = bisect_left(self._free_at, at)
        self._free_at.insert(index, at)
        self._free_length.insert(index, length)
        self._join(index)
        self._join(index - 1)

    @property
    def is_worth_releasing(self) -> bool:
        return self._freed >= WORTH_RELEASING

    def release(self) -> None:
        """Gives the kernel the pages of all that is free. Whoever comes there next finds zeros, and pays for them."""
        from mmap import MADV_REMOVE

        for at, length in zip(self._free_at, self._free_length, strict=True):
            first = -(-at // PAGE) * PAGE
            last = min(at + length, self._reached) // PAGE * PAGE
            if last > first:
                self._memory.madvise(MADV_REMOVE, first, last - first)
        self._reached = max((at + length for at, length in self._taken.items()), default=self._start)
        self._freed = 0

    def close(self) -> None:
        self._view.release()

    def _cut(self, index: int, length: int) -> int:
        at = self._free_at[index]
        if self._free_length[index] == length:
            del self._free_at[index], self._free_length[index]
        else:
            self._free_at[index] += length
            self._free_length[index] -= length
        self._taken[at] = length
        self._reached = max(self._reached, at + length)
        self.used += length
        return at

    def _join(self, index: int) -> None:
        """With the one behind it, if nothing lies between."""
        if not 0 <= index < len(self._free_at) - 1:
            return
        if self._free_at[index] + self._free_length[index] == self._free_at[index + 1]:
            self._free_length[index] += self._free_length[index + 1]
            del self._free_at[index + 1], self._free_length[index + 1]


class Lending:
    """The reader's side of a region: hands out its blocks, and notices when nobody uses one any more."""

    def __init__(self, memory: mmap.mmap, budget: int) -> None:
        self._memory = memory
        self._budget = budget
        self.lent = 0
        self.returned: deque[int] = deque()
        """Where blocks lie that may be used again; the owner sends them back to the writer."""

    def borrow(self, at: int, length: int) -> object:
        """A writable buffer over the block; where too much is lent already, a copy, and the block is free again.

        So a user may keep results for ever: what is kept never changes, and shared memory stays bounded.
        """
        if self.lent + length > self._budget:
            copy = bytearray(memoryview(self._memory)[at : at + length])
            self._give_back(at, 0)
            return copy
        from ctypes import c_char  # two milliseconds, and most workers never see a large thing

        buffer = (c_char * length).from_buffer(self._memory, at)
        self.lent += length
        # A memoryview would not do: numpy keeps the object behind it, and the weak reference would die at once.
        weakref.finalize(buffer, self._give_back, at, length).atexit = False
        return buffer

    def take_copy(self, at: int, length: int) -> bytes:
        data = self._memory[at : at + length]
        self._give_back(at, 0)
        return data

    def _give_back(self, at: int, length: int) -> None:
        self.lent -= length
        self.returned.append(at)
