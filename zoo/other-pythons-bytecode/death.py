"""A module that was compiled by another Python, as happens when environments are copied between hosts."""

import importlib
import py_compile
import sys
import tempfile
from pathlib import Path

MAGIC_OF_2_7 = b"\x03\xf3\r\n"


def die(item: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "features.py")
        source.write_text("MEAN = 0.5\n")
        compiled = Path(py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc"))))
        compiled.write_bytes(MAGIC_OF_2_7 + compiled.read_bytes()[4:])
        source.unlink()
        sys.path.insert(0, directory)
        importlib.import_module("features")
