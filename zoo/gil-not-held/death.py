"""An extension calls Python's API without holding the GIL, and Python gives up."""

import ctypes

WITHOUT_THE_GIL = ctypes.CDLL(None)


def die(item: int) -> None:
    WITHOUT_THE_GIL.PyThreadState_Get()
