"""The item waits for an answer that never comes: its own end of a pipe is the only one that is open."""

import os


def die(item: int) -> None:
    answer, _question = os.pipe()
    os.read(answer, 1)
