"""Batches that are pinned where they lie: `pin_memory=True` without a thread and without a copy.

The GPU copies by itself from memory that its driver knows. torch has a thread that copies each batch once more, into
such memory. Here the driver is told of the shared memory that batches are built in, and they are pinned from the start.

Three things bite. The worker must not give pages back that the driver knows: the GPU would go on to read the old ones
(`Blocks.keeps_pages`). A block must not be written again before the GPU has read it: `.to("cuda", non_blocking=True)`
returns long before that, so a block that nobody uses any more waits for a moment after all work that the GPUs had then.
And memory must be unregistered before it is unmapped: something else may come to lie at that address.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from lastwords.survive.blocks import PAGE, Lending
from lastwords.survive.cuda_driver import CudaError, process_driver

if TYPE_CHECKING:
    import mmap

    from lastwords.survive.loader_report import Report

log = logging.getLogger("lastwords.survive")
GROWTH = 4
"""What is registered at once later is at least that part of what is there: ragged batches shall not make hundreds."""
ON_THE_WAY = 3
"""Batches of a worker, beyond those that it makes ahead, that nobody may write to: the trainer's, the one before, and one
that the GPU may still read.
"""


class Driver(Protocol):
    def try_out(self) -> None: ...
    def register(self, address: int, length: int) -> None: ...
    def unregister(self, address: int) -> None: ...
    def record(self) -> Any | None: ...
    def is_over(self, moment: Any) -> bool: ...
    def is_capturing(self) -> bool: ...


_unfinished: list[Pinning] = []
"""Of iterators that have ended while somebody kept a batch, or the GPU still read one."""


def pinning_for(prefetch_factor: int, report: Report) -> Pinning | None:
    """None: no GPU that we know how to do it for, and torch's thread does it."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    # ROCm calls itself cuda, too.
    if accelerator is None or accelerator.type != "cuda" or torch.version.cuda is None:
        return None
    try:
        return Pinning(process_driver(), prefetch_factor + ON_THE_WAY, report)
    except CudaError as error:
        _say(report, error)
        return None


def copy_the_rest(data: Any) -> Any:
    """Into pinned memory of torch's own, what is not pinned yet: small tensors, and what was copied out of its arena."""
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(data)


class Pinning:
    """The arenas of one iterator. `turn` and what it calls runs in one thread at a time, and never inside itself."""

    def __init__(self, driver: Driver, most_held: int, report: Report) -> None:
        self.driver = driver
        self.most_held = most_held
        self.is_closed = False
        self.dropped: deque[tuple[PinnedLending, int, int]] = deque()
        """Blocks that nobody uses any more, except perhaps a GPU."""
        self._report = report
        self._works = True
        self._arenas: list[PinnedLending] = []
        self._read_by_gpu: deque[tuple[Any, list[tuple[PinnedLending, int, int]]]] = deque()
        self._turning = threading.Lock()
        self._owner = os.getpid()

    def lending(self, memory: mmap.mmap, budget: int) -> PinnedLending:
        arena = PinnedLending(memory, budget, self)
        self._arenas.append(arena)
        return arena

    def begin(self) -> bool:
        """When the workers are forked: a GPU may be used for the first time now. False: it does not work here."""
        for one in _unfinished[:]:
            one.turn()
        try:
            self.driver.try_out()
        except CudaError as error:
            self._fail(error)
        return self._works

    def pinned(self, data: Any) -> Any:
        """The batch, as it has arrived: where its arena is known to the driver, and can be, nothing is copied."""
        if any(arena.is_worth_registering for arena in self._arenas):
            self.turn()
        return copy_the_rest(data)

    def turn(self) -> bool:
        """Before the trainer waits for a batch: it is between two, and captures no graph. False: copy from now on."""
        is_ours = self._owner == os.getpid()  # a fork has copies of batches, and no GPU
        if is_ours and self._turning.acquire(blocking=False):
            try:
                if not self.driver.is_capturing():
                    self._take_turn()
            finally:
                self._turning.release()
        return self._works

    def close(self) -> None:
        """The workers have ended. What the user keeps stays; it is let go when its last block is."""
        self.is_closed = True
        for arena in self._arenas:
            arena.close()
        _unfinished.append(self)
        self.turn()

    def _take_turn(self) -> None:
        self._return_blocks()
        self._ask_when_read()
        if self.is_closed:
            self._return_blocks()  # most often the GPU is done long since, and nobody may ask again
        for arena in self._arenas[:]:
            self._tend(arena)
        if self.is_closed and not self._arenas:
            with contextlib.suppress(ValueError):
                _unfinished.remove(self)

    def _ask_when_read(self) -> None:
        """First the blocks, then the moment: one that another thread drops in between may be read after it."""
        blocks = [self.dropped.popleft() for _ in range(len(self.dropped))]
        moment = self.driver.record() if blocks else None
        if moment is None:
            self.dropped.extendleft(reversed(blocks))
        else:
            self._read_by_gpu.append((moment, blocks))

    def _return_blocks(self) -> None:
        while self._read_by_gpu and self.driver.is_over(self._read_by_gpu[0][0]):
            for arena, at, length in self._read_by_gpu.popleft()[1]:
                arena.came_back(at, length)

    def _tend(self, arena: PinnedLending) -> None:
        try:
            if arena.is_over:
                self._arenas.remove(arena)
                arena.let_go()
            elif self._works and arena.is_worth_registering:
                arena.register()
        except CudaError as error:
            self._fail(error)

    def _fail(self, error: CudaError) -> None:
        self._works = False
        _say(self._report, error)


def _say(report: Report, error: CudaError) -> None:
    report.pinned_by_copy = str(error)
    log.info("batches are pinned by a copy: %s", report.pinned_by_copy)


class PinnedLending(Lending):
    """A worker's results, registered part by part as they come into use.

    A part is one piece to the driver. A copy to the GPU that begins in one and ends behind it is refused ("invalid
    argument"), although its first byte is pinned. So such a block is never lent, and the worker, once it is told where a
    part ends, makes no more of them.
    """

    def __init__(self, memory: mmap.mmap, budget: int, pinning: Pinning) -> None:
        super().__init__(memory, budget)
        self._pinning = pinning
        self._held: dict[int, int] = {}
        self._parts: list[tuple[int, int]] = []
        """Where each begins and ends."""
        self._lowest, self._highest = 1 << 62, 0
        """Pages of blocks that lay in no part."""
        self._is_closed = False
        self._growing = threading.Lock()
        """So that no block is lent across the end of a part that is just being made."""
        self._mapping: ctypes.c_char | None = None
        """A loan of our own: whoever closes the memory finds it in use until nothing is registered."""

    # Blocks. Borrowed by the supervisor's thread, given back by any.

    def borrow(self, at: int, length: int) -> object:
        if not 0 <= at < at + length <= len(self._memory):
            raise ValueError(
                "a worker that has written over its own memory says so; the driver shall not hear of it"
            )
        self._budget = max(self._budget, length * self._pinning.most_held)
        with self._growing:
            is_stranger = not self._is_registered(at, length)
            if is_stranger and any(at < end and begin < at + length for begin, end in self._parts):
                return self.copy_out(at, length)
            if is_stranger:
                self._lowest = min(self._lowest, at // PAGE * PAGE)
                self._highest = max(self._highest, -(-(at + length) // PAGE) * PAGE)
            self._held[at] = length
        return super().borrow(at, length)

    def _give_back(self, at: int, length: int) -> None:
        """Of length 0: it was copied, by us, and no GPU has seen it."""
        if length and self._is_registered(at, length):
            self._pinning.dropped.append((self, at, length))
        else:
            self.came_back(at, length)
        if self._pinning.is_closed:
            self._pinning.turn()

    def came_back(self, at: int, length: int) -> None:
        self._held.pop(at, None)
        super()._give_back(at, length)

    def close(self) -> None:
        self._is_closed = True

    # Parts, by the thread whose turn it is

    @property
    def is_over(self) -> bool:
        return self._is_closed and not self._held

    @property
    def is_worth_registering(self) -> bool:
        """No further than blocks have been: pages that were never written cost the driver ten times as much as others."""
        return self._highest - self._end >= max(PAGE, self._size // GROWTH) and not self._is_closed

    @property
    def _end(self) -> int:
        return self._parts[-1][1] if self._parts else 0

    @property
    def _size(self) -> int:
        return self._end - self._parts[0][0] if self._parts else 0

    def register(self) -> None:
        """From where the last part ends to where blocks have been seen."""
        if self._mapping is None:
            self._mapping = ctypes.c_char.from_buffer(self._memory)
        with self._growing:
            begin, end = self._end or self._lowest, self._highest
            self._parts.append((begin, end))
        try:
            self._pinning.driver.register(ctypes.addressof(self._mapping) + begin, end - begin)
        except CudaError:
            self._parts.pop()
            raise
        self.fences.append(end)

    def let_go(self) -> None:
        """Nobody uses it any more, and the worker has ended."""
        if self._mapping is None:
            return
        start = ctypes.addressof(self._mapping)
        while self._parts:
            self._pinning.driver.unregister(start + self._parts.pop()[0])
        self._mapping = None
        with contextlib.suppress(BufferError):
            self._memory.close()

    def _is_registered(self, at: int, length: int) -> bool:
        return any(begin <= at and at + length <= end for begin, end in self._parts)
