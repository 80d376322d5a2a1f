"""Python itself gives up: an extension told it that its state is beyond repair."""

import ctypes


def die(item: int) -> None:
    ctypes.pythonapi.Py_FatalError(b"the reference count of item 5 is negative")
