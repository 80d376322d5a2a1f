"""A C++ exception that nothing catches, thrown below Python."""

from zoo import native

extension = native.load("zoothrows")


def die(item: int) -> None:
    extension.throw_uncaught()
