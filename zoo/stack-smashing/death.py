"""A copy writes past an array on the stack; the compiler's guard finds it when the function returns."""

from zoo import native

extension = native.load("zoomemory")


def die(item: int) -> None:
    extension.stack_smashing()
