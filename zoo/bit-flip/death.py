"""One bit of a good pointer is another, as failing memory makes it: no code is wrong."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.flipped_bit()
