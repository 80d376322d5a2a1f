"""The frames that faulthandler printed, of the thread that died or of all threads, behind whatever prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention, PythonFrame, PythonStack
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention

MOST_FRAMES = 128
MANY_FRAMES = 60
FEW_FUNCTIONS, SOME_ROUNDS = 6, 3
_HEAD = re.compile(
    r"(?P<who>Current thread|Thread) ?(?:0x[0-9a-fA-F]{1,16})?.{0,80}\(most recent call first\):"
)
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>\S.{0,200})'
)


def read(excerpt: Excerpt) -> PythonStack | None:
    """Innermost first, as faulthandler prints them. Tracebacks have a comma after the line's number."""
    heads = excerpt.with_needle("most recent call first", 40)
    current = next((index for index in heads if "current thread" in excerpt.lines[index].text.lower()), None)
    start = current if current is not None else heads[0] if heads else None
    if start is None:
        start = next(iter(excerpt.with_needle("fatal python error", 2)), None)
    if start is None:
        return None
    frames = _frames(excerpt, start + 1)
    source = f"{excerpt.name}, line {excerpt.lines[start].number}"
    return PythonStack(source=source, frames=frames) if frames else None


def _frames(excerpt: Excerpt, start: int) -> tuple[PythonFrame, ...]:
    frames: list[PythonFrame] = []
    for line in excerpt.lines[start : start + 2 * MOST_FRAMES]:
        if _HEAD.search(line.text):
            if frames:
                break
            continue
        found = _FRAME.search(line.text)
        if found:
            number = int(found["line"]) if found["line"].isdigit() else None
            frames.append(PythonFrame(file=found["file"], line=number, function=found["function"].strip()))
    return tuple(frames[:MOST_FRAMES])


def _recursion(excerpt: Excerpt) -> Iterator[Mention]:
    """A stack of a few functions, again and again, that faulthandler gave up to print: it stops after 100 frames."""
    found = read(excerpt)
    if found is None:
        return
    functions = {(frame.file, frame.function) for frame in found.frames}
    rounds = len(found.frames) / len(functions)
    is_deep = len(found.frames) >= MANY_FRAMES or _is_cut(excerpt)
    if is_deep and len(functions) <= FEW_FUNCTIONS and rounds >= SOME_ROUNDS:
        at = excerpt.with_needle("most recent call first", 2) or excerpt.with_needle("fatal python error", 2)
        yield mention("python-recursion", excerpt, at[0], "faulthandler", {"frames": str(len(found.frames))})


def _is_cut(excerpt: Excerpt) -> bool:
    """The dots under the last frame that was printed."""
    dots = (index for index in excerpt.with_needle("...", 40) if excerpt.lines[index].text.strip() == "...")
    return any(index and _FRAME.search(excerpt.lines[index - 1].text) for index in dots)


READER = Reader("faulthandler", read=_recursion)
