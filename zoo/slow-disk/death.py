"""A file on a file system whose server answers late, for each part again: the item gets on, and takes long."""

import os

PART = 4096


def die(item: int) -> None:
    file = os.open(f"{os.environ['ZOO_DISK']}/data", os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # else the kernel asks for much more at once
    at = 0
    while part := os.pread(file, PART, at):
        at += len(part)
