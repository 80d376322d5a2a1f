"""A checkpoint is written to a disk that is too small for it."""

import os
import tempfile


def die(item: int) -> None:
    with tempfile.TemporaryFile(dir=os.environ["ZOO_DISK"]) as checkpoint:
        for _ in range(64):
            checkpoint.write(bytes(1 << 20))
