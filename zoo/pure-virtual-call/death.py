"""A constructor calls a function that only the derived class has."""

from zoo import native

extension = native.load("zoothrows")


def die(item: int) -> None:
    extension.call_pure_virtual()
