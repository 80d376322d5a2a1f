"""An integer is divided by zero in C. The signal is called SIGFPE; no floating point is involved."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.integer_division()
