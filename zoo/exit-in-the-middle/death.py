"""Something calls _exit() in the middle of an item."""

import os


def die(item: int) -> None:
    os._exit(3)
