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
RUNNING, STEP, BEGAN, ITEM, WRITTEN, READ, READY, WANTS, BATCHES, RESTING, RESTING_PRIVATE = range(11)
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
HEADER = struct.Struct("<qqq")
"""Of a record: payload length; task number << 3 | kind; nanoseconds that the task took."""
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
    words, data = memory.words, memory.memory
    written = words[WRITTEN]
    size = (HEADER.size + len(payload) + 7) & ~7
    place = written % RING
    skipped = RING - place if place + size > RING else 0
    if written + skipped + size - words[READ] > RING:
        return False
    if skipped:
        memory.ring_words[place >> 3] = WRAP
        place = 0
    HEADER.pack_into(data, RING_AT + place, len(payload), tag, nanoseconds)
    start = RING_AT + place + HEADER.size
    data[start : start + len(payload)] = payload
    words[WRITTEN] = written + skipped + size
    return True


def read_records(memory: SharedMemory) -> tuple[list[tuple[int, int, bytes]], bool]:
    """All that were published and not read, as tag, nanoseconds, payload; and whether the rest can be believed.

    A worker may write over its own memory before it dies of that.
    """
    words, data, header = memory.words, memory.memory, HEADER.unpack_from
    read, written = words[READ], words[WRITTEN]
    found: list[tuple[int, int, bytes]] = []
    is_sound = 0 <= written - read <= RING and read >= 0
    while is_sound and read < written:
        place = read % RING
        left = RING - place - HEADER.size
        length, tag, nanoseconds = header(data, RING_AT + place) if left >= 0 else (WRAP, 0, 0)
        if length == WRAP:
            read += RING - place
            continue
        is_sound = 0 <= length <= left
        if is_sound:
            start = RING_AT + place + HEADER.size
            found.append((tag, nanoseconds, data[start : start + length]))
            read += (HEADER.size + length + 7) & ~7
    words[READ] = written
    return found, is_sound
