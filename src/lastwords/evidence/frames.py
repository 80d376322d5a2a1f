"""Which frame of a stack to name: the one a reader can do something about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePath

from lastwords.evidence.model import Evidence, Fault, NativeFrame, PythonFrame

# Faults in these are the callers' doing: strlen(NULL), memcpy past the end, raise() after abort().
_C_LIBRARY = re.compile(r"(libc|libm|libpthread|ld-linux[\w-]*|libgcc_s|libstdc\+\+|ld-musl[\w-]*)[-.]")
_STANDARD_LIBRARY = re.compile(
    r"/lib(64)?/python\d\.\d+/|(?:^|/[Ll]ib/)(?:multiprocessing|concurrent/futures|asyncio|importlib)/"
)
# As people shorten the paths of a traceback before they show it to others.
_SHORTENED = re.compile(
    r"^(?:torch|numpy|pandas|ray|celery|billiard|joblib|dask|distributed|pyspark|tensorflow|gunicorn|airflow|transformers)/"
)
_TEMPLATE = re.compile(r"<[^<>]*>")
_ABI_TAG = re.compile(r"\.(cpython-[\w-]+|abi3)\.so$")
LONGEST_FUNCTION = 4096
NEAR_STACK = 64 << 10
# Ours stand in other people's processes, and are nobody's code, also where lastwords runs from its sources.
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lastwords/record/", "/lastwords/engines/")


def faulting(evidence: Evidence) -> NativeFrame | None:
    """Where the instruction itself lies."""
    stack = evidence.native_stack
    return stack.frames[0] if stack and stack.frames else None


def blamed(evidence: Evidence) -> NativeFrame | None:
    """The innermost frame outside the C library, else the innermost.

    Where control flow left the code, who jumped; where a stack overflowed, who recurses.
    """
    stack = evidence.native_stack
    frames = stack.frames if stack else ()
    if left_code(evidence.fault) and frames and evidence.fault and frames[0].address == evidence.fault.pc:
        frames = frames[1:]
    elif overflows(evidence.fault) and evidence.recursion is not None:
        named = evidence.recursion.function
        return next((frame for frame in frames if frame.function == named), faulting(evidence))
    return next((frame for frame in frames if not _is_c_library(frame.library)), faulting(evidence))


def left_code(fault: Fault | None) -> bool:
    """The program counter itself is where the fault is: there is no code there."""
    if fault is None or fault.signal not in ("SIGSEGV", "SIGBUS"):
        return False
    return fault.access == "execute" or (fault.pc is not None and fault.pc == fault.address)


def overflows(fault: Fault | None) -> bool:
    """The address lies past the end of the thread's stack, and the stack pointer is there too."""
    if (
        fault is None
        or fault.address is None
        or fault.sp is None
        or fault.signal not in ("SIGSEGV", "SIGBUS")
    ):
        return False
    is_next_to_sp = abs(fault.address - fault.sp) < NEAR_STACK
    if fault.stack_low is None:
        return False
    return is_next_to_sp and fault.address < fault.stack_low <= fault.sp + NEAR_STACK


# Every cause asks for the frames anew, and `lastwords list` for those of two thousand deaths.


@lru_cache(1024)
def _is_c_library(path: str | None) -> bool:
    return path is not None and _C_LIBRARY.match(PurePath(path).name) is not None


@lru_cache(1024)
def short_function(name: str) -> str:
    """Without template arguments and parameters: they are long, and differ between builds of one function."""
    short, before = name[:LONGEST_FUNCTION], ""
    while short != before:
        short, before = _TEMPLATE.sub("", short), short
    return short.partition("(")[0] or name


@lru_cache(1024)
def short_library(path: str) -> str:
    """`zoonative.so` for `…/zoonative.cpython-311-x86_64-linux-gnu.so`: all of a process have the same tag."""
    return _ABI_TAG.sub(".so", PurePath(path).name)


def python_frames(evidence: Evidence) -> tuple[PythonFrame, ...]:
    """Those of the death itself: of the thread that died, else of the exception. Innermost first."""
    if evidence.python_stack is not None:
        return evidence.python_stack.frames
    return evidence.exception.frames if evidence.exception else ()


def beside(evidence: Evidence) -> PythonFrame | None:
    """Yours, on another thread: where one that died without Python frames of its own was waited for, or what a process
    hangs in whose main thread only serves others. (Dask runs tasks on threads, below a main thread that polls.)
    """
    own = evidence.python_stack
    if evidence.hang is not None:
        if own is None or any(is_yours(frame) for frame in own.frames):
            return None
    elif evidence.fault is None or (own is not None and own.is_exact):
        return None
    frames = (frame for thread in evidence.other_threads or () for frame in thread.frames)
    return next((frame for frame in frames if is_yours(frame)), None)


def yours(frames: Iterable[PythonFrame]) -> PythonFrame | None:
    """The innermost frame that is neither Python's own nor an installed package's, else the innermost."""
    known = tuple(frames)
    return next((frame for frame in known if is_yours(frame)), known[0] if known else None)


def is_yours(frame: PythonFrame) -> bool:
    if frame.file.startswith("<"):
        return False
    file = frame.file.replace("\\", "/")  # as Windows writes them
    is_installed = any(part in file for part in _INSTALLED) or _SHORTENED.match(file) is not None
    return not is_installed and _STANDARD_LIBRARY.search(file) is None
