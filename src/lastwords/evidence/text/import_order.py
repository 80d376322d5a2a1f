"""The same imports, tried in two orders: one crashes, the other does not. Then the libraries clash, whatever they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

MOST = 60
NEAR = 4
"""Lines below an import in which its crash is shown."""
_IMPORTS = re.compile(r"\b(?:import|from) ([A-Za-z_][\w.]{0,60}(?: ?, ?[A-Za-z_][\w.]{0,60}){0,8})")
_CRASH = re.compile(
    r"segmentation fault|segfault|core dumped|SIGSEGV|SIGABRT|\babort trap\b|\bcrashe[ds]\b", re.IGNORECASE
)
_FINE = re.compile(r"\bcrash\w{0,2} does not|no crash|works?\b|no (?:error|segfault)", re.IGNORECASE)
_PROMPTS = ("$", ">>>", "#", "In [")


class _Trial(NamedTuple):
    at: int
    order: tuple[str, ...]
    crashed: bool


def _read(excerpt: Excerpt) -> Iterator[Mention]:
    trials = list(_trials(excerpt))
    crashed = [one for one in trials if one.crashed]
    fine = [one for one in trials if not one.crashed]
    for bad in crashed:
        if any(set(good.order) == set(bad.order) and good.order != bad.order for good in fine):
            modules = " before ".join(bad.order[:4])
            yield mention("import-order", excerpt, bad.at, "python", {"order": modules})
            return


def _trials(excerpt: Excerpt) -> Iterator[_Trial]:
    """Imports that stand together, on one line or on lines in a row, and whether a crash stands under them."""
    names: list[str] = []
    last = -2
    for index in excerpt.with_needle("import ", MOST):
        if index != last + 1 and len(names) > 1:
            yield _trial(excerpt, last, names)
        if index != last + 1:
            names = []
        names.extend(_modules(excerpt.lines[index].text))
        last = index
    if len(names) > 1:
        yield _trial(excerpt, last, names)


def _modules(text: str) -> list[str]:
    found = (name for match in _IMPORTS.finditer(text) for name in match[1].split(","))
    return [name.strip().split(".")[0] for name in found]


def _trial(excerpt: Excerpt, at: int, names: list[str]) -> _Trial:
    """What is said of it on its own line counts, and below it, up to the next command."""
    crashed = _CRASH.search(excerpt.lines[at].text) is not None
    for line in excerpt.lines[at + 1 : at + 1 + NEAR]:
        if line.text.lstrip().startswith(_PROMPTS):
            break
        if _CRASH.search(line.text) and not _FINE.search(line.text):
            crashed = True
        if crashed or "import " in line.text or _FINE.search(line.text):
            break
    return _Trial(at, tuple(dict.fromkeys(names)), crashed)


READER = Reader(
    "python",
    (
        says("import-order", "import", r"\b(?:switch|swap|chang|revers|flipp?)\w{0,4} (?:the |my )?(?:import order|order of (?:the |these |my )?imports?|imports)\b.{0,60}\b(?:fix|help|solve|work|go(?:es)? away|gone)"),
        says("import-order", "import", r"\bimport(?:ed|ing)? \S{1,40} (?:before|after) (?:import(?:ed|ing)? )?\S{1,40}.{0,30}\b(?:crash|segfault|seg fault|segmentation|fixe[ds]|solve[ds]|goes away)"),
    ),
    _read,
)  # fmt: skip
