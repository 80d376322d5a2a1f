"""The parts that reports are made of."""

from __future__ import annotations

import msgspec

from lastwords.show.clean import clean


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`tone` is what the line is, not how it looks: `plain`, `code`, `dim`, `warn`, `strong`."""

    text: str
    label: str | None = None
    tone: str = "plain"
    depth: int = 0
    """How far it stands under the line before."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    lines: tuple[Line, ...]


def line(text: str, *, label: str | None = None, tone: str = "plain", depth: int = 0) -> Line:
    return Line(text=clean(text), label=clean(label) if label else None, tone=tone, depth=depth)
