"""The text of the lines that Python frames name, where the file is still what the process ran."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

import msgspec

from lastwords.evidence.model import PythonFrame

MOST_FRAMES = 24
LARGEST_FILE = 4 << 20
LONGEST_LINE = 200
SUFFIXES = (".py", ".pyw", ".pyx")


def with_code(frames: Iterable[PythonFrame], started: float | None) -> tuple[PythonFrame, ...]:
    """`frames` with the code of the innermost ones.

    A file changed after the process began is left alone: its line 41 may no longer be the line 41 that ran.
    """
    every = tuple(frames)
    files = {frame.file: lines_of(frame.file, started) for frame in every[:MOST_FRAMES]}
    coded = (
        msgspec.structs.replace(frame, code=_line(files[frame.file], frame.line or 0))
        for frame in every[:MOST_FRAMES]
    )
    return (*coded, *every[MOST_FRAMES:])


def _line(lines: list[str], number: int) -> str | None:
    return lines[number - 1].strip()[:LONGEST_LINE] or None if 0 < number <= len(lines) else None


def lines_of(path: str, started: float | None) -> list[str]:
    """Only of Python files: a box that names another file must not get a line of it into a report.

    Opened without blocking, so that a path which is now a pipe cannot hold us up.
    """
    if not path.endswith(SUFFIXES):
        return []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return []
    try:
        return _read(descriptor, started)
    except OSError:
        return []
    finally:
        os.close(descriptor)


def _read(descriptor: int, started: float | None) -> list[str]:
    facts = os.fstat(descriptor)
    is_changed = started is not None and facts.st_mtime > started
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_FILE or is_changed:
        return []
    return os.read(descriptor, LARGEST_FILE).decode("utf-8", "replace").splitlines()
