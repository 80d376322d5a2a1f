"""Python tracebacks, wherever they stand: with or without their first line, behind ranks, pids and timestamps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lastwords.evidence.model import Mention, PythonException, PythonFrame
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.hedges import goes_on
from lastwords.evidence.text.reader import Reader, mention

MOST = 400
MOST_FRAMES = 64
FAR = 160
"""Lines between an exception and its frames, at most."""

_NAMES = (
    r"(?:[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exceeded|Lost|Killed|Timeout|Broken|Died|Expired|Failure|Failed)"
    r"|KilledWorker|BrokenProcessPool|SystemExit|StopIteration|Empty|GeneratorExit|ExceptionGroup|CommClosedError"
    r"|(?<=\.)(?:error|timeout|gaierror|herror))"
)
# What stands under the frames of a traceback is an exception, whatever it is called.
_ANY = re.compile(r"((?:[A-Za-z_]\w{0,60}\.){0,6}[A-Za-z_]\w{0,80})(?:: (?P<message>.{0,400})|\s*$)")
_EXCEPTION = re.compile(
    rf"(?:^|[\s|>\])}}:'\"(])((?:[A-Za-z_]\w{{0,60}}\.){{0,6}}{_NAMES})"
    r"(?:: (?P<message>.{0,400})|\((?P<call>.{1,300})\)|:?\s*$)"
)
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9}|\?\?\?),? in (?P<function>\S.{0,200})'
)
_IPYTHON = re.compile(
    r"^(?P<file>[~/.\w-]{1,300}\.py|<ipython-input-[^>]{1,40}>) in (?P<function>[\w<>.]{1,120})\("
)
_JAVA = re.compile(r"^(?:java|javax|org|scala|com|io|py4j\.protocol)\.|^Py4J")
_CAUGHT = re.compile(r"Caught (\S{1,200}) in (?:DataLoader worker|.{1,40}) ?(?:process )?(\d{1,6})?")


class Raised(NamedTuple):
    at: int
    """Index of its line in the excerpt."""
    kind: str
    message: str
    frames: tuple[PythonFrame, ...]
    """Innermost first."""
    has_header: bool


def raised(excerpt: Excerpt) -> list[Raised]:
    """Every exception that the text names as the end of something, in order."""
    indices = sorted({i for needle in ("error", "exception", "interrupt", "exceeded", "lost", "killed", "timeout",
                                       "broken", "died", "systemexit", "exit", "empty", "fail", "expired")
                      for i in excerpt.with_needle(needle, MOST)})  # fmt: skip
    found: list[Raised] = []
    last = -1
    for index in indices:
        one = _exception(excerpt, index, last)
        if one is not None:
            found.append(one)
            last = index
    found.extend(_under_frames(excerpt, {one.at for one in found}))
    return sorted(found, key=lambda one: one.at)


def _exception(excerpt: Excerpt, index: int, last: int) -> Raised | None:
    text = excerpt.lines[index].text
    if _FRAME.search(text) or text.lstrip().startswith(
        ("raise ", "except ", "from ", "import ", "#", "return ")
    ):
        return None
    match = _EXCEPTION.search(text)
    if match is None or _JAVA.match(match[1]) or goes_on(text):
        return None
    frames, has_header = _frames(excerpt, index, last)
    return Raised(index, match[1], (match["message"] or match["call"] or "").strip(), frames, has_header)


def _under_frames(excerpt: Excerpt, known: set[int]) -> Iterator[Raised]:
    """Exceptions whose names say nothing, `mydata.BadRecord`: found from the first line of their traceback."""
    for head in excerpt.with_needle("traceback (most recent call last)", MOST):
        start = excerpt.lines[head].text.lower().index("traceback (most recent")
        prefix = excerpt.lines[head].text[:start]
        for at in range(head + 1, min(head + FAR, len(excerpt.lines))):
            text = excerpt.lines[at].text
            rest = text[start:] if text.startswith(prefix) else ""
            if not rest or rest[0] in " \t^~|":
                continue
            match = _ANY.match(rest)
            if match and at not in known:
                frames, has_header = _frames(excerpt, at, head)
                if frames:
                    yield Raised(at, match[1], (match["message"] or "").strip(), frames, has_header)
            break


def _frames(excerpt: Excerpt, index: int, last: int) -> tuple[tuple[PythonFrame, ...], bool]:
    """The frames above the exception, back to the exception before it."""
    frames: list[PythonFrame] = []
    for at in range(index - 1, max(last, index - FAR) - 1, -1):
        if at < 0 or len(frames) >= MOST_FRAMES:
            break
        text = excerpt.lines[at].text
        if "most recent call last" in text:
            return tuple(frames), True
        found = _FRAME.search(text) or _IPYTHON.search(text)
        if found:
            frames.append(_frame(found))
    return tuple(frames), False


def _frame(found: re.Match[str]) -> PythonFrame:
    groups = found.groupdict()
    number = groups.get("line") or ""
    return PythonFrame(
        file=groups["file"],
        line=int(number) if number.isdigit() else None,
        function=groups["function"].strip(),
    )


def as_exception(one: Raised, excerpt: Excerpt) -> PythonException:
    caught = _CAUGHT.search(one.message)
    worker = int(caught[2]) if caught and caught[2] else None
    return PythonException(
        source=f"{excerpt.name}, line {excerpt.lines[one.at].number}",
        kind=one.kind,
        message=one.message,
        frames=one.frames,
        worker=worker,
        fatal=True,
    )


def _read(excerpt: Excerpt) -> Iterator[Mention]:
    for one in raised(excerpt)[-40:]:
        fields = {"type": one.kind, "message": one.message}
        if one.frames or one.has_header:
            fields["traceback"] = "yes"
        if _CAUGHT.search(one.message):
            fields["passed_on"] = "yes"
        files = " ".join(f"{frame.file}:{frame.function}" for frame in one.frames[:12])
        yield mention("exception", excerpt, one.at, "python", {**fields, "frames": files[-200:]})


READER = Reader("python", read=_read)
