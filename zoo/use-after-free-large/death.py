"""The same with a large block, whose first words point into the C library after free()."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.use_after_free_large()
