"""CPU features by name: how the kernel spells them, which one comes with which, and what a level is made of.

Standard library alone: `lastwords.require` uses it inside jobs.
"""

from __future__ import annotations

import json
import os
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_DATA = os.path.join(os.path.dirname(__file__), "data", "cpu_features.json")


class UnknownFeature(ValueError):
    """No CPU feature or level has this name."""

    def __init__(self, name: str) -> None:
        import difflib

        near = difflib.get_close_matches(name.lower(), known(), 3, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "names are those of /proc/cpuinfo, e.g. avx2"
        super().__init__(f"there is no CPU feature called {name!r}: {hint}")


@cache
def _data() -> dict[str, Any]:
    with open(_DATA, encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def known() -> list[str]:
    """Every name that `expand` understands."""
    data = _data()
    every = (data["features"], data["aliases"], data["levels"], *data["baseline"].values())
    return sorted({name for names in every for name in names})


def canonical(name: str) -> str:
    """As /proc/cpuinfo has it; a name that nobody knows stays as it is, in small letters."""
    low = name.strip().lower()
    aliases: dict[str, str] = _data()["aliases"]
    return aliases.get(low, low)


def expand(names: Iterable[str]) -> frozenset[str]:
    """Features and levels (`x86-64-v3`) as features alone. Raises UnknownFeature."""
    found: set[str] = set()
    for name in names:
        level = name.strip().lower().replace("_", "-")
        if level in _data()["levels"]:
            found |= level_features(level)
        elif canonical(name) in known():
            found.add(canonical(name))
        else:
            raise UnknownFeature(name)
    return frozenset(found)


def level_features(level: str) -> frozenset[str]:
    """What a level has, with all the levels below it."""
    levels: dict[str, list[str]] = _data()["levels"]
    below = [name for name in sorted(levels) if name <= level]
    return frozenset(feature for name in below for feature in levels[name])


def level_of(features: Iterable[str]) -> str:
    """The highest x86-64 level that these features fill."""
    have = frozenset(map(canonical, features))
    filled = [name for name in sorted(_data()["levels"]) if level_features(name) <= have]
    return filled[-1] if filled else "x86-64-v1"


def baseline(architecture: str) -> frozenset[str]:
    """What every CPU of the architecture has: nobody needs to ask for it."""
    return frozenset(_data()["baseline"].get(architecture, ()))


def implied(feature: str) -> frozenset[str]:
    """What comes with a feature, itself left out."""
    found: set[str] = set()
    waiting = [feature]
    while waiting:
        after = _data()["features"].get(waiting.pop(), {}).get("implies", ())
        waiting += [one for one in after if one not in found]
        found.update(after)
    return frozenset(found)


def essential(features: Iterable[str]) -> list[str]:
    """The fewest names that ask for all of them: avx2 says avx already."""
    wanted = frozenset(map(canonical, features))
    said = frozenset(one for feature in wanted for one in implied(feature))
    return sorted(wanted - said)


def discovery_attribute(feature: str) -> str | None:
    """What Node Feature Discovery calls it in a label; None: no node is labelled with it unless somebody does."""
    found = _data()["features"].get(feature, {})
    attribute: str | None = None if found.get("hidden") else found.get("nfd")
    return attribute
