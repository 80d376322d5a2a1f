"""A freed object is read under an allocator that fills freed memory, as PYTHONMALLOC=debug does."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.use_after_free_poisoned()
