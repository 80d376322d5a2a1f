"""Run-time libraries of which a process had more than one copy.

Each wheel may bring its own: the names then differ (`libgomp-a34b3233.so.1`), and the loader takes both. Two OpenMP
runtimes each start a thread for every core, and those of Intel and LLVM refuse to live side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lastwords.evidence.model import Copies

SOURCE = "the files that the process had code from"
FAMILIES = {
    "OpenMP": re.compile(r"lib(?:gomp|iomp5|omp)(?:[-.]|$)"),
    "libstdc++": re.compile(r"libstdc\+\+(?:[-.]|$)"),
}


def copies(libraries: Iterable[str]) -> tuple[Copies, ...] | None:
    """None: the record does not say what was loaded."""
    names = {path: path.rpartition("/")[2] for path in libraries}
    if not names:
        return None
    found = (
        (family, tuple(path for path, name in names.items() if pattern.match(name)))
        for family, pattern in FAMILIES.items()
    )
    return tuple(Copies(source=SOURCE, name=family, paths=paths) for family, paths in found if len(paths) > 1)
