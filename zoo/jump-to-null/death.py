"""A function pointer that was never set is called."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.jump_to_null()
