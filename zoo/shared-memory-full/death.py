"""Shared memory is full: a file in /dev/shm is larger than the room there is, and its pages are written."""

import mmap
import tempfile

SIZE = 64 << 20


def die(item: int) -> None:
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(SIZE)  # tmpfs promises any size; only a page that is written takes room
        batch = mmap.mmap(file.fileno(), SIZE)
        batch.write(bytes(SIZE))
