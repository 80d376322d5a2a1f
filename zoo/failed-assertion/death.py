"""An assert() of C code fails."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.failed_assertion()
