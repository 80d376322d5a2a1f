"""The report on a terminal: 80 columns, coloured only where somebody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from io import StringIO
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from lastwords.causes import Step
from lastwords.diagnosis import Diagnosis
from lastwords.show.lines import Line, Section
from lastwords.show.report import Report, report

WIDTH = 80
NARROWEST = 40
INDENT = "  "
PLAIN_SIGNS = str.maketrans(
    {"✗": "x", "·": "-", "─": "-", "→": ">", "−": "-", "…": "...", "\u00a0": " ", "µ": "u"}
)
STYLES = {
    "plain": "",
    "code": "cyan",
    "command": "bold green",
    "dim": "dim",
    "warn": "yellow",
    "strong": "bold",
    "bad": "bold red",
    "label": "dim",
    "title": "bold",
}


def show(
    diagnosis: Diagnosis,
    *,
    stream: TextIO | None = None,
    full: bool = False,
    program: str = "lastwords",
) -> None:
    """Prints the report to `stream`, standard output unless told."""
    target = stream or sys.stdout
    width, colour = width_of(target), wants_colour(target)
    put(target, render(diagnosis, full=full, width=width, colour=colour, program=program))


def put(stream: TextIO, content: str) -> None:
    """Writes what the stream's encoding can hold; the look's own signs have a plain form for the others."""
    encoding = stream.encoding or "utf-8"
    try:
        content.encode(encoding)
    except UnicodeEncodeError:
        content = content.translate(PLAIN_SIGNS).encode(encoding, "replace").decode(encoding)
    stream.write(content)
    stream.flush()


def render(
    diagnosis: Diagnosis,
    *,
    full: bool = False,
    width: int = WIDTH,
    colour: bool = False,
    program: str = "lastwords",
) -> str:
    made = report(diagnosis, full=full, program=program)
    return paint(lay_out(made, max(NARROWEST, width)), colour=colour)


def wants_colour(stream: TextIO) -> bool:
    """Only on a terminal, and never against NO_COLOR (set and not empty)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int:
    """The terminal's, but no wider than the look was made for; a pipe gets that."""
    try:
        return min(WIDTH, os.get_terminal_size(stream.fileno()).columns or WIDTH)
    except (OSError, ValueError, AttributeError):
        return WIDTH


def paint(lines: Iterator[Text], *, colour: bool) -> str:
    """Lines have been folded to the width already, so the console must not do it again."""
    buffer = StringIO()
    console = Console(
        file=buffer,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        width=10_000,
        highlight=False,
        legacy_windows=False,
    )
    for line in lines:
        console.print(line, soft_wrap=True, crop=False)
    return buffer.getvalue()


def lay_out(found: Report, width: int) -> Iterator[Text]:
    yield from _headline(found, width)
    yield from fold(found.sentence, "strong", width)
    if found.proof or found.doubts:
        yield Text()
    for line in (*found.proof, *found.doubts):
        yield from lay_out_line(line, width)
    if found.steps:
        yield from _steps(found.steps, width)
    if found.context or found.more:
        yield Text()
    for line in (*found.context, *found.more):
        yield from lay_out_line(line, width)
    for section in found.sections:
        yield from lay_out_section(section, width)


def lay_out_briefly(found: Report, width: int) -> Iterator[Text]:
    """What died, where in the user's code, and the first thing to do."""
    yield from _headline(found, width)
    yield from fold(found.sentence, "strong", width)
    for line in found.context:
        if line.label in ("your code", "at", None, ""):
            yield from lay_out_line(line, width)
    for step in found.steps[:1]:
        yield from fold(step.text, "plain", width, first=f"{INDENT}fix  ", rest=INDENT * 2)
        if step.command:
            yield Text(f"{INDENT * 2}{step.command}", style=STYLES["command"])


def lay_out_section(section: Section, width: int) -> Iterator[Text]:
    yield Text()
    yield Text(INDENT + section.title, style=STYLES["title"])
    for line in section.lines:
        yield from lay_out_line(line, width, INDENT * 2)


def _headline(found: Report, width: int) -> Iterator[Text]:
    """The cause stands at the right edge; where there is no room, on a line of its own."""
    left = f"✗ {found.headline}"
    room = width - cell_len(left) - cell_len(found.verdict)
    if room >= 2:
        yield _styled((left, "bad"), (" " * room, "plain"), (found.verdict, "strong"))
        return
    yield from fold(found.headline, "bad", width, first="✗ ")
    yield _styled((" " * max(0, width - cell_len(found.verdict)), "plain"), (found.verdict, "strong"))


def _steps(steps: tuple[Step, ...], width: int) -> Iterator[Text]:
    yield Text()
    yield Text(f"{INDENT}What to do", style=STYLES["title"])
    for number, step in enumerate(steps, 1):
        yield from fold(step.text, "plain", width, first=f"    {number}. ")
        if step.command:
            # Not folded: a command is copied as it stands.
            yield Text(f"         {step.command}", style=STYLES["command"])


def lay_out_line(line: Line, width: int, indent: str = INDENT) -> Iterator[Text]:
    margin = indent + INDENT * line.depth
    if not line.label:
        yield from fold(line.text, line.tone, width, first=margin)
        return
    first, *rest = fold(line.text, line.tone, width, first=f"{margin}{line.label}  ", rest=f"{margin}    ")
    first.stylize(STYLES["label"], 0, len(margin) + len(line.label))
    yield first
    yield from rest


def fold(text: str, tone: str, width: int, *, first: str = INDENT, rest: str | None = None) -> Iterator[Text]:
    """`text` in lines of at most `width` columns, broken at spaces where it can be; wide characters count twice."""
    after = " " * cell_len(first) if rest is None else rest
    lead, words = first, ""
    for word in _pieces(text, width - max(cell_len(first), cell_len(after))):
        if words and cell_len(lead) + cell_len(words) + cell_len(word.rstrip()) > width:
            yield _styled((lead, "plain"), (words.rstrip(), tone))
            lead, words = after, ""
        words += word
    yield _styled((lead, "plain"), (words.rstrip(), tone))


def _pieces(text: str, room: int) -> Iterator[str]:
    """Words with the space after them; one that is longer than a line is cut."""
    for word in text.split(" "):
        left = word
        while cell_len(left) > room > 0:
            head = set_cell_size(left, room).rstrip() or left[:1]
            yield head
            left = left[len(head) :]
        yield f"{left} "


def _styled(*parts: tuple[str, str]) -> Text:
    line = Text()
    for text, tone in parts:
        line.append(text, style=STYLES[tone])
    return line
