"""A row is written past the end of its block; free() finds the next block damaged."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.heap_overrun()
