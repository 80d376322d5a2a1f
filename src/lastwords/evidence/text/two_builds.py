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


READER = Reader("loader", read=_read)
