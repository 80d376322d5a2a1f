"""The lines of a log that are worth reading, found in megabytes of noise.

The native core finds the lines that have an alarm word (`alarms.py`), in one pass. Those are often a few kinds of
lines, printed again and again with other numbers: a line without its digits is its shape, and of each alarming shape
the first lines are kept, with their neighbours. Text that is short is kept whole.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import accumulate
from operator import itemgetter
from typing import BinaryIO, NamedTuple, TypeVar

from lastwords.evidence.text.alarms import ALARMS, FINDER
from lastwords.evidence.text.unpacked import Unpacked

SMALL = 192 << 10
CHUNK = 8 << 20
OVERLAP = 16 << 10
LARGEST_UTF16 = 256 << 20
LONGEST_LINE = 4096
LONGEST_BYTES = 32 << 10
BEFORE, AFTER = 24, 6
VARIANTS = 12
"""Lines of one shape that differ in their numbers: the exit code is one of them."""
MOST_HITS, FEWEST_HITS = 1500, 20
"""Lines looked at from either end of a chunk, shared among the shapes that it has; and those that each shape gets."""
MOST_SHAPES = 300_000
MOST_ALARMING = 50_000
SHARE, RARE = 100, 25
"""New shapes of one alarm word that are kept from a chunk, and that leave it a rare word."""
HEAD, TAIL = 4000, 8000
"""Lines kept from the front and from the end, where there are more."""

_NUMBERS = b"0123456789"
_BREAKS = bytes(10 if byte == 13 else byte for byte in range(256))
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TELLING = re.compile(rb"(?:ode|tatus|gnal|rrno|Xid|value)\D{1,24}\d{1,10}")
_ESCAPED_BREAK = re.compile(r"(?:\\r)?\\n")


Found = TypeVar("Found")


class Line(NamedTuple):
    number: int
    text: str


class Excerpt:
    """The lines, and all of them as one lower-case text to search in."""

    def __init__(self, name: str, lines: Iterable[Line], notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.lines = tuple(lines)
        self.notes = notes
        self.lower = "\n".join(_lower(line.text) for line in self.lines)
        self._starts = list(accumulate((len(line.text) + 1 for line in self.lines), initial=0))[:-1]

    def with_needle(self, needle: str, most: int) -> list[int]:
        """Indices of the lines that have it: the first half of `most`, and the last half."""
        found: list[int] = []
        at = self.lower.find(needle)
        while at >= 0:
            found.append(bisect_right(self._starts, at) - 1)
            following = found[-1] + 1
            at = self.lower.find(needle, self._starts[following]) if following < len(self._starts) else -1
        return _ends(found, most // 2)


def _lower(text: str) -> str:
    """Of the same length: a few letters of other scripts grow when they change their case."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text


def excerpt(data: bytes, name: str = "log") -> Excerpt:
    return excerpt_of(BytesIO(data), name)


def excerpt_of(file: BinaryIO, name: str = "log") -> Excerpt:
    """Of a log that need not fit into memory: a chunk at a time is in it. Raises UnreadableLog."""
    unpacked = Unpacked(file, name)
    lines = _bounded(list(_lines_of(unpacked)))
    torn = f"{name} breaks off where it is compressed: what stands before that was read"
    return Excerpt(name, lines, (torn,) if unpacked.is_torn else ())


def _lines_of(file: Unpacked) -> Iterator[Line]:
    read: Callable[[int], bytes] = file.read
    head = read(SMALL + 1)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):  # Windows' shells write UTF-16 when output is sent to a file
        whole = head + read(LARGEST_UTF16)
        head, read = whole.decode("utf-16", "replace").encode("utf-8", "replace"), BytesIO().read
    if len(head) <= SMALL:
        return _lines(1, head)
    sieve = Sieve()
    for number, chunk in _chunks(head, read):
        sieve.add(number, chunk)
    return sieve.lines()


def _chunks(head: bytes, read: Callable[[int], bytes]) -> Iterator[tuple[int, bytes]]:
    """Number of the first line, and text, of pieces that end at line ends and overlap a little."""
    number, rest = 1, head
    while block := read(CHUNK):
        data = rest + block
        end = data.rfind(b"\n") + 1 or len(data)
        yield number, data[:end]
        again = data.rfind(b"\n", 0, max(0, end - OVERLAP)) + 1 or end
        number += data.count(b"\n", 0, again)
        rest = data[again:]
    yield number, rest


class Sieve:
    """Keeps the lines of alarming shapes, and the neighbours of those whose alarm is rare."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._alarming: dict[bytes, bool] = {}
        """Shapes, and whether their alarm is rare."""
        self._variants: dict[bytes, set[bytes]] = {}
        self._kept: dict[tuple[int, bytes], None] = {}

    def lines(self) -> Iterator[Line]:
        for number, text in sorted(self._kept, key=itemgetter(0)):
            yield from _lines(number, text)

    def add(self, number: int, chunk: bytes) -> None:
        found = FINDER.lines(chunk)
        if not found:
            return
        lines = chunk.translate(_BREAKS).split(b"\n")
        shapes = [(index, lines[index].translate(None, _NUMBERS)) for index in found]
        fresh = {shape for _, shape in shapes} - self._seen
        if len(self._seen) < MOST_SHAPES:
            self._seen |= fresh
        if len(self._alarming) >= MOST_ALARMING:
            self._alarming.clear()  # whoever fills a log with alarms cannot hide the last ones so
        self._alarming.update(_alarming(fresh))
        self._keep(number, chunk, lines, self._hits(shapes))

    def _hits(self, shapes: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Of each alarming shape the first and the last: one with `killed=0` on every line must not crowd the others out."""
        places: dict[bytes, list[int]] = {}
        for index, shape in shapes:
            if shape in self._alarming:
                places.setdefault(shape, []).append(index)
        each = max(FEWEST_HITS, MOST_HITS // (len(places) or 1))
        hits = [(index, shape) for shape, found in places.items() for index in _ends(found, each)]
        return sorted(hits)

    def _keep(self, number: int, chunk: bytes, lines: list[bytes], hits: list[tuple[int, bytes]]) -> None:
        wanted: set[int] = set()
        for index, shape in hits:
            if self._is_new(shape, lines[index]):
                rare = self._alarming[shape]
                first, last = (index - BEFORE, index + AFTER) if rare else (index, index)
                wanted.update(range(max(0, first), min(len(lines), last + 1)))
        for index, its_number in _numbered(number, chunk, lines, sorted(wanted)):
            self._kept[its_number, lines[index][:LONGEST_BYTES]] = None

    def _is_new(self, shape: bytes, line: bytes) -> bool:
        """The same line again says nothing; with other numbers it may, a few times; with another code it does."""
        variants = self._variants.setdefault(shape, set())
        telling = _TELLING.search(line)
        if telling is not None and telling[0] not in variants and len(variants) < 10 * VARIANTS:
            variants.update((telling[0], line))
            return True
        if len(variants) >= VARIANTS or line in variants:
            return False
        variants.add(line)
        return True


def _alarming(shapes: set[bytes]) -> dict[bytes, bool]:
    """Those with an alarm word. One text of all of them is searched faster than each by itself.

    A word that half the log has says little: it gets no more than its share, and no neighbours.
    """
    text, by_word = b"\n".join(shapes), dict[bytes, list[bytes]]()
    for alarm in ALARMS:
        at = 0
        while match := alarm.search(text, at):
            at = text.find(b"\n", match.end())
            at = len(text) if at < 0 else at
            found = by_word.setdefault(match[0], [])
            if len(found) < SHARE:
                found.append(text[text.rfind(b"\n", 0, match.start()) + 1 : at])
    return {shape: len(found) < RARE for found in by_word.values() for shape in found}


def _numbered(number: int, chunk: bytes, lines: list[bytes], wanted: list[int]) -> Iterator[tuple[int, int]]:
    """The number of each line. A carriage return begins a new piece of the same line."""
    if b"\r" not in chunk:
        yield from ((index, number + index) for index in wanted)
        return
    ends, before = list(accumulate(map(len, lines))), 0
    for index in wanted:
        start = ends[index - 1] + index if index else 0
        number += chunk.count(b"\n", before, start)
        before = start
        yield index, number


def _ends(found: list[Found], half: int) -> list[Found]:
    return found if len(found) <= 2 * half else [*found[:half], *found[-half:]]


def _bounded(lines: list[Line]) -> list[Line]:
    return lines if len(lines) <= HEAD + TAIL else [*lines[:HEAD], *lines[-TAIL:]]


def _lines(number: int, raw: bytes) -> Iterator[Line]:
    """Lines as a reader would see them: no colours, no progress bars that were written over."""
    for offset, whole in enumerate(raw.split(b"\n")):
        for part in whole.split(b"\r"):
            for piece in _pieces(part[:LONGEST_BYTES].decode("utf-8", "replace")):
                text = piece if piece.isprintable() else _CONTROL.sub(" ", _ANSI.sub("", piece))
                if text and not text.isspace():
                    yield Line(number + offset, text[:LONGEST_LINE])


def _pieces(text: str) -> list[str]:
    """A log in JSON has its line ends, and often a whole traceback, inside one string."""
    return _ESCAPED_BREAK.split(text) if "\\n" in text else [text]
