"""A pointer with bits that no address has is followed, as after a buffer overrun or a bit flip."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.impossible_address()
