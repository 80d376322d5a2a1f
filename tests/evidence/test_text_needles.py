"""A pattern is looked for by its needles: what its expression allows beside them would never be found."""

from __future__ import annotations

import random
import re
import sys
from typing import Any

import pytest

from lastwords.evidence.text.assemble import readers
from lastwords.evidence.text.reader import Pattern

if sys.version_info >= (3, 11):
    from re import _parser as expressions
else:
    import sre_parse as expressions

SAMPLES = 60
ANYTHING = {
    "CATEGORY_DIGIT": "7",
    "CATEGORY_WORD": "w",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "z",
    "CATEGORY_NOT_DIGIT": "d",
    "CATEGORY_NOT_WORD": ":",
}


def patterns() -> list[tuple[str, Pattern]]:
    return [
        (f"{reader.system}: {'|'.join(pattern.needles)}", pattern)
        for reader in readers()
        for pattern in reader.patterns
        if pattern.regex is not None and not _only_narrows(pattern)
    ]


def _only_narrows(pattern: Pattern) -> bool:
    """The expression looks at the rest of a line that the needle has found."""
    assert pattern.regex is not None
    source = pattern.regex.pattern.lower().replace("\\", "")
    return not any(needle in source for needle in pattern.needles)


@pytest.mark.parametrize("pattern", [pytest.param(one, id=name) for name, one in patterns()])
def test_whatever_it_matches_has_a_needle(pattern: Pattern):
    chance = random.Random(pattern.kind)
    assert pattern.regex is not None
    tree = expressions.parse(pattern.regex.pattern)
    samples = (_sample(tree, chance) for _ in range(SAMPLES))
    matching = [one for one in samples if pattern.regex.search(one)]
    hidden = [one for one in matching if not any(needle in one.lower() for needle in pattern.needles)]
    assert not hidden, f"{pattern.needles} is not in what it matches: {hidden[:3]}"


def _sample(tree: Any, chance: random.Random) -> str:
    """One text that the expression matches, as far as look-arounds allow."""
    return "".join(_piece(str(kind), value, chance) for kind, value in tree)


def _piece(kind: str, value: Any, chance: random.Random) -> str:
    if kind == "LITERAL":
        return chr(value)
    if kind == "IN":
        return _of_a_set(value, chance)
    if kind == "BRANCH":
        return _sample(chance.choice(value[1]), chance)
    if kind == "SUBPATTERN":
        return _sample(value[3], chance)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, what = value
        times = max(low, chance.randint(0, min(1, high)))
        return "".join(_sample(what, chance) for _ in range(times))
    return "y" if kind in ("ANY", "NOT_LITERAL") else ""


def _of_a_set(members: list[Any], chance: random.Random) -> str:
    if str(members[0][0]) == "NEGATE":
        return "q"
    kind, value = chance.choice(members)
    if str(kind) == "RANGE":
        return chr(chance.randint(*value))
    return chr(value) if str(kind) == "LITERAL" else ANYTHING[str(value)]


def test_the_sampler_finds_what_is_hidden():
    tree = expressions.parse(r"worker (?:died|vanished)")
    found = {_sample(tree, random.Random(seed)) for seed in range(20)}
    assert found == {"worker died", "worker vanished"}
    assert all(re.search(r"worker (?:died|vanished)", one) for one in found)
