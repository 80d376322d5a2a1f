"""The memory that a supervisor shares with one worker, and the two pipes beside it.

    claims    one byte for each task in the worker's hands: who takes it, worker or supervisor
    words     what runs, since when, how far: written by the worker, read by the supervisor at any time
    ring      finished results, published one by one: what is published survives the worker
    tasks     blocks written by the supervisor: batches, and large arguments
    results   blocks written by the worker: large results

Pipes carry frames of 24 bytes, so neither side ever waits for the other to read; data goes through the memory.
"""

from __future__ import annotations

import mmap
import os
import struct

from lastwords.recording import Claims, ItemWords, Ring

PAGE = 4096
MOST_IN_HAND = PAGE
"""Tasks that one worker may hold: one claim byte each."""
WORDS_AT = PAGE
RING_AT = 2 * PAGE
RING = 1 << 20
TASKS_AT = RING_AT + RING
SPAN = 1 << 34
"""Of each region of blocks. Address space, not memory: a memfd has no page that was never written."""
SMALLEST_SPAN = 1 << 26

# Words, by number. The worker writes all but READ and LIMIT: which items of which task it must not begin.
RUNNING, STEP, BEGAN, ITEM, WRITTEN, READ, READY, WANTS, BATCHES, BORN, RESTING, RESTING_PRIVATE, LIMIT = (
    range(13)
)
# BORN, RESTING, RESTING_PRIVATE: bytes of its own before the first task, after the last one, and there less what it
# shares with the process that it was forked from.
# Values of READY.
STARTING, SERVING, REFUSED = range(3)

FRAME = struct.Struct("<qqq")
# What the supervisor sends.
BATCH, RETURNED, ROOM, STOP, FENCE = range(5)

NO_FUNCTION = -1
"""In a task: its function is pickled with its arguments, because it is not one that a name stands for."""

# Kinds of records in the ring.
VALUE, ERROR, FREED, PART = range(4)  # in two bits; those of PART are both set
LARGE = 4
"""Added to a kind: the payload says where in the blocks the rest lies. FREED with it is a plain result: see ring.rs."""


class SharedMemory:
    """Made by the supervisor, and opened again by its descriptor in a worker that was not forked."""

    def __init__(self, descriptor: int, span: int) -> None:
        self.span = span
        self.memory = mmap.mmap(descriptor, TASKS_AT + 2 * span)
        self.claims = Claims(descriptor, MOST_IN_HAND)
        self.words = memoryview(self.memory)[WORDS_AT : WORDS_AT + PAGE].cast("q")
        self.items = ItemWords(descriptor, WORDS_AT, ITEM, BEGAN, RUNNING, STEP, LIMIT)
        self.records = Ring(descriptor, WORDS_AT, RING, WRITTEN, READ)

    @property
    def results_at(self) -> int:
        return TASKS_AT + self.span

    def close(self) -> None:
        """Borrowed results keep the mapping alive; it goes with the last of them."""
        self.words.release()
        try:
            self.memory.close()
        except BufferError:
            pass


def new_memory() -> tuple[int, SharedMemory]:
    """Its descriptor and its mapping. A process with a limit on its address space gets smaller spans."""
    span = SPAN
    descriptor = os.memfd_create("lastwords-worker", os.MFD_CLOEXEC)
    while True:
        try:
            os.ftruncate(descriptor, TASKS_AT + 2 * span)
            return descriptor, SharedMemory(descriptor, span)
        except (OSError, ValueError, OverflowError):  # noqa: PERF203  # at most four turns
            span //= 4
            if span < SMALLEST_SPAN:
                os.close(descriptor)
                raise
