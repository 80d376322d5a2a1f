"""Which frame of a stack to name: the one a reader can do something about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from lastwords.evidence.model import Evidence, NativeFrame, PythonFrame

# Faults in these are the callers' doing: strlen(NULL), memcpy past the end, raise() after abort().
_C_LIBRARY = re.compile(r"(libc|libm|libpthread|ld-linux[\w-]*|libgcc_s|libstdc\+\+|ld-musl[\w-]*)[-.]")
_STANDARD_LIBRARY = re.compile(r"/lib(64)?/python\d\.\d+/")
_TEMPLATE = re.compile(r"<[^<>]*>")
_ABI_TAG = re.compile(r"\.(cpython-[\w-]+|abi3)\.so$")
LONGEST_FUNCTION = 4096
_INSTALLED = ("/site-packages/", "/dist-packages/")


def faulting(evidence: Evidence) -> NativeFrame | None:
    """Where the instruction itself lies."""
    stack = evidence.native_stack
    return stack.frames[0] if stack and stack.frames else None


def blamed(evidence: Evidence) -> NativeFrame | None:
    """The innermost frame outside the C library, else the innermost."""
    stack = evidence.native_stack
    frames = stack.frames if stack else ()
    return next((frame for frame in frames if not _is_c_library(frame)), faulting(evidence))


def _is_c_library(frame: NativeFrame) -> bool:
    return frame.library is not None and _C_LIBRARY.match(PurePath(frame.library).name) is not None


def short_function(name: str) -> str:
    """Without template arguments and parameters: they are long, and differ between builds of one function."""
    short, before = name[:LONGEST_FUNCTION], ""
    while short != before:
        short, before = _TEMPLATE.sub("", short), short
    return short.partition("(")[0] or name


def short_library(path: str) -> str:
    """`zoonative.so` for `…/zoonative.cpython-311-x86_64-linux-gnu.so`: all of a process have the same tag."""
    return _ABI_TAG.sub(".so", PurePath(path).name)


def python_frames(evidence: Evidence) -> tuple[PythonFrame, ...]:
    """Those of the death itself: of the thread that died, else of the exception. Innermost first."""
    if evidence.python_stack is not None:
        return evidence.python_stack.frames
    return evidence.exception.frames if evidence.exception else ()


def yours(frames: Iterable[PythonFrame]) -> PythonFrame | None:
    """The innermost frame that is neither Python's own nor an installed package's, else the innermost."""
    known = tuple(frames)
    return next((frame for frame in known if is_yours(frame)), known[0] if known else None)


def is_yours(frame: PythonFrame) -> bool:
    if frame.file.startswith("<"):
        return False
    is_installed = any(part in frame.file for part in _INSTALLED)
    return not is_installed and _STANDARD_LIBRARY.search(frame.file) is None
