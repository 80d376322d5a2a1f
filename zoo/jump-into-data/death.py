"""A table is called as if it were a function: no memory that can be written may be run."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.jump_into_data()
