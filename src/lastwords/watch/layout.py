"""Where CPython keeps threads, frames and names: found by looking at our own interpreter, in which we know them all.

A thread of ours stands in a function of ours; Python itself says where its frame and its code object are (`id`), what
they are called and which thread it is. So each offset is the place at which a known value lies. Tables of offsets, one for each
version, as other tools have them, would have to be written again for every version to come.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lastwords.watch.process_memory import Mapped, Memory, Unreadable, mapped_files, memory_of

FIRST_VERSION = (3, 11)
"""Before it frames were objects of their own, and the interpreter's state lay on the heap."""
LARGEST_INTERPRETER = 64 << 10
LARGEST_THREAD = 1024
LARGEST_FRAME = 128
LARGEST_CODE = 256
LENGTH = 16
"""Of an object of variable size: behind the reference count and the type. Texts have theirs at the same place."""
STATE = 32
"""Of a text: how wide its characters are, behind its length and its hash."""
TAG = 7
"""Bits of a pointer to an object that some versions use for themselves."""


@dataclass(frozen=True, slots=True)
class Layout:
    image: tuple[str, str]
    """Device and inode of the file that the interpreter is in."""
    interpreter: int
    """The main interpreter, from where that file is loaded."""
    code_type: int
    threads: int
    """In the interpreter: its newest thread."""
    next_thread: int
    native_id: int
    frame: tuple[int, ...]
    """From the thread to its innermost frame, by as many steps."""
    previous: int
    code: int
    instruction: int
    file: int
    """In the code object, like those below."""
    function: int
    line_table: int
    first_line: int
    code_start: int
    texts: TextKinds


@dataclass(frozen=True, slots=True)
class TextKinds:
    """How to tell from its state where the characters of a text begin, and how wide they are."""

    shift: int
    kinds: dict[int, tuple[int, str]]

    def of(self, state: int) -> tuple[int, str]:
        try:
            return self.kinds[state >> self.shift & KIND_BITS]
        except KeyError:
            raise Unreadable from None


class Unknown(Exception):
    """Not where it was looked for."""


@cache
def own_layout() -> Layout | None:
    """None: this interpreter keeps it in another way, or nobody may look."""
    if sys.implementation.name != "cpython" or sys.version_info < FIRST_VERSION:
        return None
    try:
        with standing() as known, memory_of(os.getpid()) as memory:
            return _search(memory, known)
    except (OSError, Unreadable, Unknown, ImportError, AttributeError, RuntimeError):
        return None


@dataclass(slots=True)
class Standing:
    """A thread of ours that stands in `stand`, called by `begin`."""

    stands: threading.Lock = field(default_factory=threading.Lock)
    may_go: threading.Lock = field(default_factory=threading.Lock)
    native_id: int = 0
    identity: int = 0

    def begin(self) -> None:
        self.native_id, self.identity = threading.get_native_id(), threading.get_ident()
        self.stand()

    def stand(self) -> None:
        self.stands.release()
        self.may_go.acquire()

    @property
    def frame(self) -> types.FrameType:
        """Of `stand`: from its first line on the thread calls nothing that has a frame."""
        return sys._current_frames()[self.identity]  # noqa: SLF001  # public but for its name: sys documents it


@contextlib.contextmanager
def standing() -> Iterator[Standing]:
    one = Standing()
    one.stands.acquire()
    one.may_go.acquire()
    thread = threading.Thread(target=one.begin, name="lastwords-layout", daemon=True)
    thread.start()
    one.stands.acquire()
    try:
        yield one
    finally:
        one.may_go.release()
        thread.join()


def _search(memory: Memory, known: Standing) -> Layout:
    frame, code = known.frame, known.frame.f_code
    interpreter, threads = _threads_of_python()
    image = _image_of(interpreter)
    native_id = _native_id(memory, threads, known.native_id)
    thread = next(one for one in threads if memory.word(one + native_id) == known.native_id)
    inner, outer = _place_of(memory, frame), _place_of(memory, _caller(frame))
    code_start = _basic_size(types.CodeType)
    in_frame, in_code = memory.words(inner, LARGEST_FRAME), memory.words(id(code), LARGEST_CODE)
    last = range(id(code) + code_start, id(code) + code_start + len(code.co_code))
    return Layout(
        image=image.file,
        interpreter=interpreter - image.start,
        code_type=id(types.CodeType) - image.start,
        threads=_offset(memory.words(interpreter, LARGEST_INTERPRETER), lambda word: word == threads[0]),
        next_thread=_offset(memory.words(threads[0], LARGEST_THREAD), lambda word: word == threads[1]),
        native_id=native_id,
        frame=_way_to(memory, thread, inner),
        previous=_offset(in_frame, lambda word: word == outer),
        code=_offset(in_frame, lambda word: word & ~TAG == id(code)),
        instruction=_offset(in_frame, lambda word: word in last),
        file=_offset(in_code, lambda word: word == id(code.co_filename)),
        function=_offset(in_code, lambda word: word == id(code.co_name)),
        line_table=_offset(in_code, lambda word: word == id(code.co_linetable)),
        first_line=_first_line(memory, code),
        code_start=code_start,
        texts=_text_kinds(memory),
    )


def _offset(words: dict[int, int], fits: Callable[[int], bool]) -> int:
    for offset, word in words.items():
        if fits(word):
            return offset
    raise Unknown


def _threads_of_python() -> tuple[int, list[int]]:
    """The main interpreter and its threads, the newest first."""
    import ctypes

    def asked(name: str, *arguments: int) -> int:
        function: Any = getattr(ctypes.pythonapi, name)
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p] * len(arguments)
        return int(function(*arguments) or 0)

    interpreter = asked("PyInterpreterState_Main")
    threads, thread = [], asked("PyInterpreterState_ThreadHead", interpreter)
    while thread:
        threads.append(thread)
        thread = asked("PyThreadState_Next", thread)
    return interpreter, threads


def _image_of(address: int) -> Mapped:
    """The file whose data this is: the nearest below, from where it begins. What it fills with zeros has no name."""
    files = list(mapped_files(os.getpid()))
    nearest = max((one for one in files if one.start <= address), key=lambda one: one.start, default=None)
    if nearest is None:
        raise Unknown
    return min((one for one in files if one.file == nearest.file), key=lambda one: one.start)


def _native_id(memory: Memory, threads: list[int], known: int) -> int:
    found = [memory.words(thread, LARGEST_THREAD) for thread in threads]
    wanted = {known, threading.get_native_id()}
    for offset in found[0]:
        if wanted <= {words.get(offset) for words in found}:
            return offset
    raise Unknown


def _caller(frame: types.FrameType) -> types.FrameType:
    if frame.f_back is None:
        raise Unknown
    return frame.f_back


def _place_of(memory: Memory, frame: types.FrameType) -> int:
    """The interpreter's own frame behind the object: it points back at it, and at its code."""
    for word in memory.words(id(frame), _basic_size(types.FrameType)).values():
        try:
            inside = set(memory.words(word, LARGEST_FRAME).values())
        except Unreadable:
            continue
        if id(frame) in inside and any(one & ~TAG == id(frame.f_code) for one in inside):
            return word
    raise Unknown


def _way_to(memory: Memory, thread: int, frame: int) -> tuple[int, ...]:
    """3.11 and 3.12 have a structure on the C stack between the two, later versions have none."""
    words = memory.words(thread, LARGEST_THREAD)
    for offset, word in words.items():
        if word == frame:
            return (offset,)
    for offset, word in words.items():
        try:
            inside = memory.words(word, 4 * LENGTH)
        except Unreadable:
            continue
        for second, found in inside.items():
            if found == frame:
                return (offset, second)
    raise Unknown


def _basic_size(kind: type) -> int:
    """A code object ends where its instructions begin."""
    return int(kind.__basicsize__)


def _first_line(memory: Memory, code: types.CodeType) -> int:
    """A number of four bytes; two codes of different lines tell it from others that happen to be alike."""
    other = _first_line.__code__
    for offset in range(LENGTH, LARGEST_CODE, 4):
        lines = [int.from_bytes(memory.read(id(one) + offset, 4), sys.byteorder) for one in (code, other)]
        if lines == [code.co_firstlineno, other.co_firstlineno]:
            return offset
    raise Unknown


_ENDING = "le" if sys.byteorder == "little" else "be"
KIND_BITS = 0b11111
"""Side by side in all versions: is it all ASCII, does it lie behind its head, how many bytes has a character."""
SAMPLES = {
    0b11001: ("b", "ascii"),
    0b01001: ("é", "latin-1"),
    0b01010: ("€", f"utf-16-{_ENDING}"),
    0b01100: ("\U0001f40d", f"utf-32-{_ENDING}"),
}


def _text_kinds(memory: Memory) -> TextKinds:
    """From one text of each kind. What else is in the word of the state is different everywhere, or was never set."""
    texts = {kind: ("a" * 20 + last, encoding) for kind, (last, encoding) in SAMPLES.items()}
    states = {
        kind: int.from_bytes(memory.read(id(text) + STATE, 4), sys.byteorder)
        for kind, (text, _) in texts.items()
    }
    for shift in range(32):
        if all(state >> shift & KIND_BITS == kind for kind, state in states.items()):
            begins = {kind: (_begin_of(memory, *text), text[1]) for kind, text in texts.items()}
            return TextKinds(shift, begins)
    raise Unknown


def _begin_of(memory: Memory, text: str, encoding: str) -> int:
    content = text.encode(encoding)
    at = memory.read(id(text), sys.getsizeof(text)).find(content)
    if at < 0:
        raise Unknown
    return at
