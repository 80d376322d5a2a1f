"""An extension that was built for another processor is loaded: here for one of 32 bits."""

import ctypes
import tempfile

from zoo import native

CLASS, CLASS_32 = 4, 1
LIBRARY = native.build()


def die(item: int) -> None:
    image = bytearray(LIBRARY.read_bytes())
    image[CLASS] = CLASS_32
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(image)
        file.flush()
        ctypes.CDLL(file.name)
