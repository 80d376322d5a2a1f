"""Control arrives at bytes that are no instruction of any CPU."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.invalid_opcode()
