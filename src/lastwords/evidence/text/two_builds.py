"""Two builds of one library on one printed stack: a call goes from one into the other, and their structures differ.

Seen with psycopg2-binary under uWSGI: SSL_new of the system's libssl.so.1.1 calls into libssl-c0c2ede4.so.1.0.2q of the wheel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention

MOST = 400
NEAR = 40
"""Lines of one stack."""
# auditwheel puts eight digits of a hash into the name of what it copies.
_LIBRARY = re.compile(r"\b(?P<name>lib[a-z][\w+]{0,40}?)(?:-[0-9a-f]{8})?\.so(?:\.\d[\w.]{0,12})?(?=[(\[])")


def _read(excerpt: Excerpt) -> Iterator[Mention]:
    seen: dict[str, tuple[int, str]] = {}
    for index in excerpt.with_needle(".so", MOST):
        found = _LIBRARY.search(excerpt.lines[index].text)
        if found is None:
            continue
        at, build = seen.get(found["name"], (index, found[0]))
        if build != found[0] and index - at <= NEAR:
            yield mention("two-builds", excerpt, index, "loader", {"builds": f"{build} and {found[0]}"})
            return
        seen[found["name"]] = (index, found[0])


# A debugger's list of images, /proc/PID/maps, vmmap: an address, and the path at the end of the line.
_LOADED = re.compile(
    r"[0-9a-f]{6,16}\b.{0,120}?\s(?P<path>/\S{1,400}/(?P<name>lib[a-z][\w+]{0,40})[.-]\S{1,60})$"
)


def _loaded_twice(excerpt: Excerpt) -> Iterator[Mention]:
    """One library from two places, and it is the one that the stack is in."""
    paths: dict[str, dict[str, int]] = {}
    for index in excerpt.with_needle("/lib", MOST):
        found = _LOADED.search(excerpt.lines[index].text.rstrip())
        if found is not None and found["path"].endswith((".dylib", ".so")):
            paths.setdefault(found["name"], {}).setdefault(found["path"], index)
    for name, places in paths.items():
        on_stack = re.compile(rf"\b{re.escape(name)}[\w.]{{0,20}}[`(]")
        if len(places) > 1 and any(on_stack.search(line.text) for line in excerpt.lines):
            two = " and ".join(list(places)[:2])
            yield mention("two-builds", excerpt, max(places.values()), "loader", {"builds": two})


def _both(excerpt: Excerpt) -> Iterator[Mention]:
    yield from _read(excerpt)
    yield from _loaded_twice(excerpt)


READER = Reader("loader", read=_both)
