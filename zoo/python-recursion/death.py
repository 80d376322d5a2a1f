"""A Python function calls itself through C code, and the guard against that was switched off."""

import sys


def die(item: int) -> None:
    sys.setrecursionlimit(10**8)
    flatten(item)


def flatten(depth: int) -> int:
    return next(map(flatten, [depth + 1]))
