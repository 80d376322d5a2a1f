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
    import ctypes
    import mmap

ALIGNMENT = 64
"""Of a cache line, and what vector instructions ask for."""
PAGE = 4096
WORTH_RELEASING = 1 << 20
"""Bytes that have become free: below, asking the kernel to take them costs more than they are worth."""


_windows: dict[int, type[ctypes.Array[ctypes.c_char]]] = {}
"""By length. ctypes forgets such a type with its last object, and makes it anew for the next batch."""
MOST_WINDOWS = 256


def window(memory: mmap.mmap, at: int, length: int) -> ctypes.Array[ctypes.c_char]:
    """A writable buffer over a part of it, which can be weakly referred to."""
    kind = _windows.get(length)
    if kind is None:
        from ctypes import c_char  # two milliseconds, and most workers never see a large thing

        if len(_windows) >= MOST_WINDOWS:
            _windows.clear()
        kind = _windows[length] = c_char * length
    return kind.from_buffer(memory, at)


class Blocks:
    """Room in one region, first fit from the bottom: what was used is used again while it is warm.

    Fresh pages of a memfd cost a page fault and a zeroing for each 4 KiB, about as much as the copy itself.
    """

    def __init__(
        self, memory: mmap.mmap, start: int, length: int, budget: int, *, keeps_pages: bool = False
    ) -> None:
        """`keeps_pages`: a device knows them, and would go on to use those that were given back (see pinned.py)."""
        self._memory = memory
        self._keeps_pages = keeps_pages
        self._alignment = PAGE if keeps_pages else ALIGNMENT
        self._view = memoryview(memory)
        self._start = start
        self._free_at: list[int] = [start]
        self._free_length: list[int] = [length]
        self._taken: dict[int, int] = {}
        self._fences: list[int] = []
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
        length = -(-max(length, 1) // self._alignment) * self._alignment
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
        for fence in self._fences:
            self._split(fence)

    def fence(self, at: int) -> None:
        """No block that is taken from now on lies on both sides of it."""
        self._fences.append(at)
        self._split(at)

    @property
    def is_worth_releasing(self) -> bool:
        return self._freed >= WORTH_RELEASING and not self._keeps_pages

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

    def _split(self, fence: int) -> None:
        index = bisect_left(self._free_at, fence) - 1
        if index < 0:
            return
        at, length = self._free_at[index], self._free_length[index]
        if fence < at + length:
            self._free_length[index] = fence - at
            self._free_at.insert(index + 1, fence)
            self._free_length.insert(index + 1, at + length - fence)

    def _join(self, index: int) -> None:
        """With the one behind it, if nothing lies between."""
        if not 0 <= index < len(self._free_at) - 1:
            return
        if self._free_at[index] + self._free_length[index] == self._free_at[index + 1]:
            self._free_length[index] += self._free_length[index + 1]
            del self._free_at[index + 1], self._free_length[index + 1]


class _Loan(weakref.ref):  # type: ignore[type-arg]  # ctypes is not loaded yet
    """Of a block. weakref.finalize would do, and takes five times as long."""

    __slots__ = ("at", "length")
    at: int
    length: int


class Lending:
    """The reader's side of a region: hands out its blocks, and notices when nobody uses one any more."""

    def __init__(self, memory: mmap.mmap, budget: int) -> None:
        self._memory = memory
        self._budget = budget
        self._loans: dict[int, _Loan] = {}
        self.lent = 0
        self.returned: deque[int] = deque()
        """Where blocks lie that may be used again; the owner sends them back to the writer."""
        self.fences: deque[int] = deque()
        """That the writer shall put up; sent with the next block that goes back."""

    def borrow(self, at: int, length: int) -> object:
        """A writable buffer over the block; where too much is lent already, a copy, and the block is free again.

        So a user may keep results for ever: what is kept never changes, and shared memory stays bounded.
        """
        if self.lent + length > self._budget:
            return self.copy_out(at, length)
        buffer = window(self._memory, at, length)
        self.lent += length
        # A memoryview would not do: numpy keeps the object behind it, and the weak reference would die at once.
        loan = self._loans[at] = _Loan(buffer, self._has_ended)
        loan.at, loan.length = at, length
        return buffer

    def _has_ended(self, loan: _Loan) -> None:
        del self._loans[loan.at]
        self._give_back(loan.at, loan.length)

    def copy_out(self, at: int, length: int) -> bytearray:
        copy = bytearray(memoryview(self._memory)[at : at + length])
        self._give_back(at, 0)
        return copy

    def close(self) -> None:
        """Its worker has ended. What is lent stays."""

    def take_copy(self, at: int, length: int) -> bytes:
        data = self._memory[at : at + length]
        self._give_back(at, 0)
        return data

    def _give_back(self, at: int, length: int) -> None:
        self.lent -= length
        self.returned.append(at)
