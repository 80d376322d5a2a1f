"""A C function calls itself until the stack ends."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.stack_overflow()
