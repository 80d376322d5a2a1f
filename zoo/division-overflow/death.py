"""The smallest integer is divided by -1: no int can hold the quotient."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.division_overflow()
