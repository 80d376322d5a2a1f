"""The Python lines of a process that cannot be asked, read from its memory: it sleeps in state D, is stopped or frozen.

The probe signal needs a thread that runs, and one that sleeps in the kernel does not. Its frames lie in its memory all the
same, at the places that `layout.py` finds in our own interpreter; they are the same in every process that runs this very
file, and of any other nothing is said. Nothing read here is trusted: each length is bounded, and what is no code object
ends the search.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from lastwords.watch.layout import LENGTH, STATE, TAG, Layout, own_layout
from lastwords.watch.process_memory import Mapped, Memory, Unreadable, mapped_files, memory_of
from lastwords.watch.threads import Thread

PATIENCE = 1.0
"""Seconds: its memory may be locked for as long as it waits itself."""
READINGS = 5
"""At most. Two that agree were not torn by a thread that ran meanwhile."""
MOST_THREADS = 64
MOST_FRAMES = 128
LONGEST_TEXT = 4096
LONGEST_TABLE = 1 << 20
MOST_FILES = 4096
TYPE = 8
"""Of an object: behind its reference count."""


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int | None
    function: str


Stacks = dict[int, tuple[Frame, ...]]
"""By thread, the innermost frame first."""


@dataclass(frozen=True, slots=True)
class Inside:
    stacks: Stacks = field(default_factory=dict)
    """Empty: another interpreter than ours, or it did not stand still."""
    texts: tuple[str | None, ...] = ()
    """What the first two arguments of the call that it is in would be, taken for texts. The call decides."""
    working_directory: str | None = None
    mapped: tuple[str, ...] = ()
    """The files that its memory has parts of; only for one that waits for a page."""


def look(pid: int, thread: Thread) -> Inside | None:
    """`thread`: the one whose call is of interest. None: no right to look, or its memory is locked."""
    found: list[Inside] = []

    def work() -> None:
        with contextlib.suppress(OSError), memory_of(pid) as memory:
            files = list(mapped_files(pid))
            found.append(
                Inside(
                    stacks=_stacks(memory, files),
                    texts=tuple(_c_text(memory, argument) for argument in thread.arguments),
                    working_directory=_working_directory(pid),
                    mapped=_paths(files) if thread.is_in_page_fault else (),
                )
            )

    looking = threading.Thread(target=work, name="lastwords-outside", daemon=True)
    try:
        looking.start()
    except RuntimeError:  # No thread to be had (pids.max, RLIMIT_NPROC).
        return None
    looking.join(PATIENCE)
    return found[0] if found else None


def _paths(files: list[Mapped]) -> tuple[str, ...]:
    return tuple(sorted({one.path for one in files}))[:MOST_FILES]


def _c_text(memory: Memory, address: int) -> str | None:
    with contextlib.suppress(Unreadable):
        return memory.text(address, LONGEST_TEXT)
    return None


def _working_directory(pid: int) -> str | None:
    """The link alone is read, not what it leads to."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return None


def _stacks(memory: Memory, files: list[Mapped]) -> Stacks:
    layout = own_layout()
    if layout is None:
        return {}
    base = min((one.start for one in files if one.file == layout.image), default=None)
    with contextlib.suppress(Unreadable):
        return _steady(memory, layout, base) if base is not None else {}
    return {}


def _steady(memory: Memory, layout: Layout, base: int) -> Stacks:
    last: Stacks | None = None
    for _ in range(READINGS):
        found = dict(_read(memory, layout, base))
        if found == last:
            return found
        last = found
    return {}


def _read(memory: Memory, layout: Layout, base: int) -> Iterator[tuple[int, tuple[Frame, ...]]]:
    thread = memory.word(base + layout.interpreter + layout.threads)
    for _ in range(MOST_THREADS):
        if not thread:
            return
        frames = tuple(_frames(memory, layout, base, thread))
        yield memory.word(thread + layout.native_id), frames
        thread = memory.word(thread + layout.next_thread)


def _frames(memory: Memory, layout: Layout, base: int, thread: int) -> Iterator[Frame]:
    place = thread
    for step in layout.frame:
        place = memory.word(place + step)
    for _ in range(MOST_FRAMES):
        if not place:
            return
        code = memory.word(place + layout.code) & ~TAG
        # Where C called Python some versions put a frame without code of its own.
        if code and memory.word(code + TYPE) == base + layout.code_type:
            yield from _frame(memory, layout, code, memory.word(place + layout.instruction))
        place = memory.word(place + layout.previous)


def _frame(memory: Memory, layout: Layout, code: int, instruction: int) -> Iterator[Frame]:
    file = _text(memory, layout, memory.word(code + layout.file))
    function = _text(memory, layout, memory.word(code + layout.function))
    if function.startswith("<interpreter"):  # 3.12's frame for a call from C.
        return
    table = _bytes(memory, memory.word(code + layout.line_table))
    first = int.from_bytes(memory.read(code + layout.first_line, 4), sys.byteorder, signed=True)
    yield Frame(file, _line(table, first, instruction - code - layout.code_start), function)


def _line(table: bytes, first: int, at: int) -> int | None:
    """The table is of our own interpreter's making, so our own interpreter reads it."""
    try:
        lines = _line.__code__.replace(co_linetable=table, co_firstlineno=first).co_lines()
        return next((line for start, end, line in lines if start <= at < end), None)
    except (ValueError, OverflowError):
        return None


def _text(memory: Memory, layout: Layout, address: int) -> str:
    state = int.from_bytes(memory.read(address + STATE, 4), sys.byteorder)
    begin, encoding = layout.texts.of(state)
    length = min(memory.word(address + LENGTH), LONGEST_TEXT)
    width = len("a".encode(encoding))
    return memory.read(address + begin, length * width).decode(encoding, "replace")


def _bytes(memory: Memory, address: int) -> bytes:
    length = memory.word(address + LENGTH)
    if length > LONGEST_TABLE:
        raise Unreadable
    begin = bytes.__basicsize__ - 1  # the zero at its end counts
    return memory.read(address + begin, length)
