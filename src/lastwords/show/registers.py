"""Registers, and what they point at. Memory of a stack is never shown: it may hold anything."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.frames import short_library
from lastwords.evidence.model import Evidence, Pointer
from lastwords.show.lines import Line, line

_TEXT = re.compile(rb"[\x20-\x7e]{6,}")
WORD = 16
"""Hexadecimal digits of one number of 64 bits."""
_FREED = {
    "cache": "looks freed: on malloc's list of free blocks",
    "bin": "looks freed: on malloc's list of large free blocks",
    "filled": "looks freed: filled with one byte",
}


def registers(evidence: Evidence) -> Iterator[Line]:
    values = (
        [f"{name} {value:#x}" for name, value in evidence.fault.registers.items()] if evidence.fault else []
    )
    for start in range(0, len(values), 3):
        yield line("  ".join(values[start : start + 3]), tone="dim")
    if evidence.instruction is not None:
        yield line(f"{evidence.instruction.text}    ({evidence.instruction.bytes})", label="instruction")


def pointed(evidence: Evidence) -> Iterator[Line]:
    for one in evidence.pointers or ():
        yield line(_where(one), label=one.register)
        if one.points_into != "[stack]":
            yield line(_content(one), tone="dim", depth=1)


def _where(one: Pointer) -> str:
    into = one.points_into
    name = short_library(into) if into and into.startswith("/") else into or "memory of no known mapping"
    offset = f" + {one.offset:#x}" if one.offset is not None and into != "[stack]" else ""
    freed = f"; {_FREED[one.freed]}" if one.freed in _FREED else ""
    return f"{name}{offset}{freed}"


def _content(one: Pointer) -> str:
    words = [one.bytes[start : start + WORD] for start in range(0, len(one.bytes), WORD)]
    return f"{' '.join(words)}{_as_text(one.bytes)}"


def _as_text(content: str) -> str:
    try:
        found = _TEXT.search(bytes.fromhex(content))
    except ValueError:
        return ""
    return f"  {found[0].decode('ascii')!r}" if found else ""
