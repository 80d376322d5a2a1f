"""A deeply nested list is printed: Python's own C code calls itself once per level."""

import sys

LEVELS = 1_000_000


def die(item: int) -> None:
    sys.setrecursionlimit(10**8)
    nested: list[object] = []
    for _ in range(LEVELS):
        nested = [nested]
    repr(nested)
