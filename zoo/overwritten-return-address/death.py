"""A copy writes past an array and over the return address: the function returns to "AAAAAAAA"."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.overwritten_return()
