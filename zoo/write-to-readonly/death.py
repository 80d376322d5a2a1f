"""A constant is written to."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.write_to_readonly()
