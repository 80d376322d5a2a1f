"""A mapped file is cut short by somebody else, and what was there is read."""

import mmap
import tempfile


def die(item: int) -> None:
    with tempfile.NamedTemporaryFile(prefix="shard-", suffix=".bin") as file:
        file.truncate(4 * mmap.PAGESIZE)
        rows = mmap.mmap(file.fileno(), 4 * mmap.PAGESIZE)
        file.truncate(mmap.PAGESIZE)
        rows[2 * mmap.PAGESIZE]
