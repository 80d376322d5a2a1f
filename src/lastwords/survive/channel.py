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

from lastwords.recording import Claims

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

# Words, by number. The worker writes all but READ.
RUNNING, STEP, BEGAN, ITEM, WRITTEN, READ, READY, WANTS, BATCHES = range(9)
# Values of READY.
STARTING, SERVING, REFUSED = range(3)

FRAME = struct.Struct("<qqq")
# What the supervisor sends.
BATCH, RETURNED, ROOM, STOP = range(4)

NO_FUNCTION = -1
"""In a task: its function is pickled with its arguments, because it is not one that a name stands for."""

# Kinds of records in the ring.
VALUE, ERROR, FREED, PART = range(4)  # in two bits; those of PART are both set
LARGE = 4
"""Added to a kind: the payload says where in the blocks the rest lies."""
HEADER_WORDS = 3
"""Payload length; task number << 3 | kind; nanoseconds that the task took."""
WRAP = -1
"""In place of a length: the next record is at the ring's beginning."""


class SharedMemory:
    """Made by the supervisor, and opened again by its descriptor in a worker that was not forked."""

    def __init__(self, descriptor: int, span: int) -> None:
        self.span = span
        self.memory = mmap.mmap(descriptor, TASKS_AT + 2 * span)
        self.claims = Claims(descriptor, MOST_IN_HAND)
        self.words = memoryview(self.memory)[WORDS_AT : WORDS_AT + PAGE].cast("q")
        self.ring = memoryview(self.memory)[RING_AT : RING_AT + RING]
        self.ring_words = self.ring.cast("q")

    @property
    def results_at(self) -> int:
        return TASKS_AT + self.span

    def close(self) -> None:
        """Borrowed results keep the mapping alive; it goes with the last of them."""
        for view in (self.ring_words, self.ring, self.words):
            view.release()
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


def write_record(memory: SharedMemory, tag: int, nanoseconds: int, payload: bytes) -> bool:
    """Publishes one result; False: the ring is full. Torn records do not exist: WRITTEN moves last."""
    words, ring_words = memory.words, memory.ring_words
    written = words[WRITTEN]
    size = (HEADER_WORDS * 8 + len(payload) + 7) & ~7
    place = written % RING
    skipped = RING - place if place + size > RING else 0
    if written + skipped + size - words[READ] > RING:
        return False
    if skipped:
        ring_words[place >> 3] = WRAP
        place = 0
    index = place >> 3
    ring_words[index] = len(payload)
    ring_words[index + 1] = tag
    ring_words[index + 2] = nanoseconds
    start = place + HEADER_WORDS * 8
    memory.ring[start : start + len(payload)] = payload
    words[WRITTEN] = written + skipped + size
    return True


def read_records(memory: SharedMemory) -> list[tuple[int, int, bytes]]:
    """All that were published and not read: tag, nanoseconds, payload."""
    words, ring, ring_words = memory.words, memory.ring, memory.ring_words
    read, written = words[READ], words[WRITTEN]
    found = []
    while read < written:
        place = read % RING
        index = place >> 3
        length = ring_words[index]
        if length == WRAP:
            read += RING - place
            continue
        start = place + HEADER_WORDS * 8
        if not 0 <= length <= RING - start:
            break  # A worker that overwrites its own memory before it dies: nothing behind this can be believed.
        found.append((ring_words[index + 1], ring_words[index + 2], bytes(ring[start : start + length])))
        read += (HEADER_WORDS * 8 + length + 7) & ~7
    words[READ] = written
    return found
