"""The same recursion on a thread that C code started: Python does not know it."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.stack_overflow_on_c_thread()
