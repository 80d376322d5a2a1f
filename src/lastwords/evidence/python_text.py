"""Reads what CPython's faulthandler prints: one block of frames for each thread, innermost frame first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import PythonFrame, PythonStack

MOST_THREADS = 256
MOST_FRAMES = 512
_THREAD = re.compile(
    r"(Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[(.{0,64})\])? \(most recent call first\):"
)
_FRAME = re.compile(r'  File "(.{0,4096})", line (\d{1,9}|\?\?\?) in (.{1,1024})')


def parse(text: str, source: str) -> tuple[PythonStack | None, tuple[PythonStack, ...]]:
    """The stack of the thread that died, and those of all other threads."""
    current: PythonStack | None = None
    others: list[PythonStack] = []
    for is_current, stack in _blocks(text, source):
        if is_current and current is None:
            current = stack
        elif len(others) < MOST_THREADS:
            others.append(stack)
    return current, tuple(others)


def _blocks(text: str, source: str) -> Iterator[tuple[bool, PythonStack]]:
    is_current, thread, frames = False, "", list[PythonFrame]()
    for line in text.splitlines():
        head = _THREAD.fullmatch(line)
        if head:
            if thread:
                yield is_current, PythonStack(source=source, frames=tuple(frames), thread=thread)
            is_current, thread, frames = head[1] == "Current thread", head[3] or head[2], []
        elif thread and len(frames) < MOST_FRAMES:
            frames.extend(_frame(line))
    if thread:
        yield is_current, PythonStack(source=source, frames=tuple(frames), thread=thread)


def _frame(line: str) -> Iterator[PythonFrame]:
    found = _FRAME.fullmatch(line)
    if found:
        number = None if found[2] == "???" else int(found[2])
        yield PythonFrame(file=found[1], line=number, function=found[3])
