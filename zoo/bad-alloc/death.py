"""C++ asks for more memory than there can be: std::bad_alloc, and nothing catches it."""

from zoo import native

extension = native.load("zoothrows")


def die(item: int) -> None:
    extension.ask_too_much()
