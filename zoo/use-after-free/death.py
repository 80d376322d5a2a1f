"""A freed object's function is called: malloc keeps its own pointers there by now."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.use_after_free()
