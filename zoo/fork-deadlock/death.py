"""A mutex of C code that another thread held when the worker was forked."""

from zoo import native

zooshared = native.load("zooshared")
zooshared.hold_mutex()


def die(item: int) -> None:
    zooshared.take_mutex()
