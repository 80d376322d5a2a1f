"""Code that the compiler was told is unreachable is reached: it put a trap there."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.trap()
