"""What a reader of log text is: a table of fixed messages that one system prints, each a typed statement.

A message is found by a short literal first (`needle`), and only lines that have it meet the regular expression.
Matching ignores case and looks anywhere in the line: in front of a message stand timestamps, ranks and pids.
Expressions have no nested quantifiers, so that no line can make them slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt

LONGEST_QUOTE = 240
LONGEST_FIELD = 200
MOST_MENTIONS = 12
"""Of one pattern: the thousandth repetition says nothing new."""
MOST_ATTEMPTS = 400
"""Lines that have the needle and still do not match; then the pattern gives up."""


class Pattern(NamedTuple):
    kind: str
    needles: tuple[str, ...]
    regex: re.Pattern[str] | None
    unless: re.Pattern[str] | None
    fields: dict[str, str]


def says(
    kind: str, needle: str, regex: str | None = None, *, unless: str | None = None, **fields: str
) -> Pattern:
    """A line with `needle` in it, which `regex` matches and `unless` does not, says `kind`.

    `a|b` are two needles, of which one is enough. Named groups become fields.
    """
    return Pattern(kind, tuple(needle.lower().split("|")), _compiled(regex), _compiled(unless), fields)


def _compiled(regex: str | None) -> re.Pattern[str] | None:
    return re.compile(regex, re.IGNORECASE) if regex else None


class Reader(NamedTuple):
    system: str
    patterns: tuple[Pattern, ...] = ()
    read: Callable[[Excerpt], Iterator[Mention]] | None = None
    """For what takes more than one line."""


def read(reader: Reader, excerpt: Excerpt) -> Iterator[Mention]:
    for pattern in reader.patterns:
        yield from _matches(pattern, excerpt, reader.system)
    if reader.read is not None:
        yield from reader.read(excerpt)


def _matches(pattern: Pattern, excerpt: Excerpt, system: str) -> Iterator[Mention]:
    found = 0
    for index in _candidates(pattern, excerpt):
        text = excerpt.lines[index].text
        match = pattern.regex.search(text) if pattern.regex else None
        if (pattern.regex is not None and match is None) or (pattern.unless and pattern.unless.search(text)):
            continue
        groups = {name: value for name, value in match.groupdict().items() if value} if match else {}
        yield mention(pattern.kind, excerpt, index, system, {**pattern.fields, **groups})
        found += 1
        if found >= MOST_MENTIONS:
            return


def _candidates(pattern: Pattern, excerpt: Excerpt) -> list[int]:
    there = [needle for needle in pattern.needles if needle in excerpt.lower]
    if len(there) < 2:
        return excerpt.with_needle(there[0], MOST_ATTEMPTS) if there else []
    return sorted({index for one in there for index in excerpt.with_needle(one, MOST_ATTEMPTS)})


def mention(
    kind: str, excerpt: Excerpt, index: int, system: str, fields: dict[str, str] | None = None
) -> Mention:
    line = excerpt.lines[index]
    return Mention(
        source=f"{excerpt.name}, line {line.number}",
        kind=kind,
        quote=line.text.strip()[:LONGEST_QUOTE],
        line=line.number,
        system=system,
        fields={name: value[:LONGEST_FIELD] for name, value in (fields or {}).items()},
    )
