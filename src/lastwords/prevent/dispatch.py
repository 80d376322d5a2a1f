"""What is chosen by CPU outside a library's code: by a package's Python, by its loader, by glibc."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePath

import msgspec

from lastwords.prevent import features

DATA = Path(__file__).with_name("data") / "dispatch.json"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    says: str
    file: str = "*"
    package: str | None = None
    folder: str | None = None
    beside: str | None = None
    """Counts only where this lies beside the file's folder."""
    when: tuple[str, ...] = ()
    dispatches: bool = False
    refuses: bool = False


class Known(msgspec.Struct, frozen=True, kw_only=True):
    about: str
    rules: tuple[Rule, ...]
    tokens: dict[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def known() -> Known:
    return msgspec.json.decode(DATA.read_bytes(), type=Known)


def rule_for(path: str, package: str | None, names_beside: Callable[[], frozenset[str]]) -> Rule | None:
    """The rule for a library, None where its own code is all there is. `names_beside` lists its folder."""
    place = PurePath(path)
    for rule in known().rules:
        if _fits(rule, place, package):
            return rule
    return _glibc(place) or _variant(place.name, names_beside) or _folder(place)


def _fits(rule: Rule, place: PurePath, package: str | None) -> bool:
    if not fnmatchcase(place.name, rule.file) or (rule.folder and place.parent.name != rule.folder):
        return False
    if rule.package and _normal(rule.package) != _normal(package or ""):
        return False
    return rule.beside is None or os.path.isdir(place.parent.with_name(rule.beside))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _glibc(place: PurePath) -> Rule | None:
    """The loader takes `glibc-hwcaps/x86-64-v3/libx.so` where the CPU has that level."""
    if "glibc-hwcaps" not in place.parts[:-2]:
        return None
    level = place.parts[place.parts.index("glibc-hwcaps") + 1]
    when = tuple(sorted(features.level_features(level)))
    return Rule(when=when, says=f"glibc loads it where the CPU has {level}")


def _variant(name: str, names_beside: Callable[[], frozenset[str]]) -> Rule | None:
    """`fuzz_avx2.so` beside `fuzz.so` or `fuzz_sse2.so`: one of them is chosen."""
    for token, pattern in _tokens():
        if token not in name.lower() or (part := pattern.search(name)) is None:
            continue
        stem = name[: part.start()]
        if any(other != name and _is_sibling(other, stem, name[part.end() :]) for other in names_beside()):
            says = f"its name and those beside it say that it is chosen where the CPU has {token}"
            return Rule(when=known().tokens[token], says=says)
    return None


@lru_cache(maxsize=1)
def _tokens() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The longest first: `avx512` is no `avx`. Each with how it stands in a name."""
    longest_first = sorted(known().tokens, key=len, reverse=True)
    return tuple(
        (token, re.compile(rf"(?i)[-_.]?(?<![a-z]){re.escape(token)}(?![a-z0-9])")) for token in longest_first
    )


def _folder(place: PurePath) -> Rule | None:
    """`lib/avx2/libx.so` beside `lib/basic/libx.so` (ctransformers)."""
    token = place.parent.name.lower()
    if token not in known().tokens:
        return None
    try:
        others = [name for name in os.listdir(place.parent.parent) if name != place.parent.name]
    except OSError:
        return None
    if not any(os.path.exists(place.parent.parent / name / place.name) for name in others):
        return None
    says = f"its folder and those beside it say that it is chosen where the CPU has {token}"
    return Rule(when=known().tokens[token], says=says)


def _is_sibling(other: str, stem: str, rest: str) -> bool:
    return (
        bool(stem.strip("_.-"))
        and other.startswith(stem)
        and other.endswith(rest or ".so")
        and ".so" in other
    )
