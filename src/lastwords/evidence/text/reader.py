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
from lastwords.evidence.text.hedges import certain, goes_on, is_setting

LONGEST_QUOTE = 240
LONGEST_FIELD = 200
MOST_MENTIONS = 12
"""Of one pattern: the thousandth repetition says nothing new."""
MOST_ATTEMPTS = 400
"""Lines that have the needle and still do not match; then the pattern gives up."""

# What a library guesses when it knows no more than that a worker is gone, and what is left of the statement then.
GUESSED = {
    "oom-kill": "memory-guess",
    "memory-limit": "memory-guess",
    "preempted": None,
    "time-limit": None,
    "cancelled": None,
    "hardware-error": None,
    "parent-gone": None,
    "open-files": None,
    "disk-full": None,
    "no-threads": None,
    "network-failure": None,
    "fork-deadlock": "fork-hint",
}
# Troubles that programs often live with.
BEARABLE = frozenset({
    "module-missing", "library-missing", "network-failure", "version-mismatch", "abi-conflict", "open-files", "file-damaged",
    "disk-full", "gpu-arch", "symbol-undefined", "cpu-lacks",
})  # fmt: skip


class Pattern(NamedTuple):
    kind: str
    needles: tuple[str, ...]
    regex: re.Pattern[str] | None
    unless: re.Pattern[str] | None
    fields: dict[str, str]
    sure: bool = False
    """Its words are a statement even where they sound like a guess."""


def says(
    kind: str,
    needle: str,
    regex: str | None = None,
    *,
    unless: str | None = None,
    sure: bool = False,
    **fields: str,
) -> Pattern:
    """A line with `needle` in it, which `regex` matches and `unless` does not, says `kind`.

    `a|b` are two needles, of which one is enough. Named groups become fields.
    """
    return Pattern(kind, tuple(needle.lower().split("|")), _compiled(regex), _compiled(unless), fields, sure)


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
        kind = _stated(pattern, excerpt, index, match)
        if kind is None:
            continue
        groups = {name: value for name, value in match.groupdict().items() if value} if match else {}
        yield mention(kind, excerpt, index, system, {**pattern.fields, **groups})
        found += 1
        if found >= MOST_MENTIONS:
            return


def _stated(pattern: Pattern, excerpt: Excerpt, index: int, match: re.Match[str] | None) -> str | None:
    """The kind of what the line says; None where it only prints a setting, or thinks of a reason."""
    text = excerpt.lines[index].text
    if is_setting(text, match.start() if match else _place(pattern, text)):
        return None
    if pattern.kind in BEARABLE and goes_on(text):
        return None
    if pattern.kind not in GUESSED or pattern.sure:
        return pattern.kind
    above = excerpt.lines[index - 1].text if index else ""
    stated = certain(text, above)
    still = pattern.regex.search(stated) if pattern.regex else _place(pattern, stated) >= 0
    return pattern.kind if still else GUESSED[pattern.kind]


def _place(pattern: Pattern, text: str) -> int:
    """Of the first needle that the text has, or -1."""
    lower = text.lower()
    return next((at for needle in pattern.needles if (at := lower.find(needle)) >= 0), -1)


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
