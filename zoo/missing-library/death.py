"""A shared library that an extension needs is not installed here."""

import ctypes


def die(item: int) -> None:
    ctypes.CDLL("libzoo-is-not-installed.so.1")
