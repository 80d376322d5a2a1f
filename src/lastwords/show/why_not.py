"""The answer to "why not that cause?", as text and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

from rich.text import Text

from lastwords.diagnosis import WhyNot
from lastwords.show import text
from lastwords.show.lines import Line, line
from lastwords.show.report import percent


def render(answer: WhyNot, *, width: int = text.WIDTH, colour: bool = False) -> str:
    return text.paint(_lay_out(answer, width), colour=colour)


def show(answer: WhyNot, stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    text.put(target, render(answer, width=text.width_of(target), colour=text.wants_colour(target)))


def _lay_out(answer: WhyNot, width: int) -> Iterator[Text]:
    yield from text.fold(_verdict(answer), "strong", width, first="")
    for one in _lines(answer):
        yield from text.lay_out_line(one, width)


def _verdict(answer: WhyNot) -> str:
    if answer.is_best and answer.is_claimed:
        return f"It is {answer.id} ({percent(answer.confidence)}): {answer.title}."
    return f"{answer.id} ({percent(answer.confidence)}): {answer.title}"


def _lines(answer: WhyNot) -> Iterator[Line]:
    for term in answer.terms:
        label = "against" if term.weight < 0 else "for    "
        yield line(f"{term.text}  ({term.weight:+.1f})", label=label, tone="plain")
    for need in answer.not_collected:
        yield line(f"{need.replace('_', ' ')}", label="not collected", tone="dim")
