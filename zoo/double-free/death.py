"""A block of memory is given back twice."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.double_free()
