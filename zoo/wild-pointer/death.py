"""A pointer that was never set to anything sensible is followed."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.wild_pointer()
