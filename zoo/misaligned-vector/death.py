"""A vector instruction gets an address that is not a multiple of 16: the kernel gives no reason at all."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.misaligned_vector()
