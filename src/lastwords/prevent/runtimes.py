"""OpenMP and BLAS runtimes by the names of their files: which of them come twice."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable

# auditwheel adds a hash to the name: libgomp-a34b3233.so.1, libscipy_openblas64_-6bb31eeb.so
_KINDS = (
    ("OpenMP (GNU)", re.compile(r"libgomp\b|libgomp-")),
    ("OpenMP (Intel)", re.compile(r"libiomp5")),
    ("OpenMP (LLVM)", re.compile(r"libomp[\d.-]")),
    ("OpenBLAS", re.compile(r"lib(scipy_)?openblas")),
    ("MKL", re.compile(r"libmkl_(rt|core)")),
    ("BLIS", re.compile(r"libblis")),
)


def kind_of(path: str) -> str | None:
    name = os.path.basename(path)
    return next((kind for kind, pattern in _KINDS if pattern.match(name)), None)


def runtimes_among(paths: Iterable[str]) -> tuple[str, ...]:
    """Those libraries that are one."""
    return tuple(sorted({path for path in paths if kind_of(path) is not None}))


def by_kind(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        kind = kind_of(path)
        if kind is not None:
            found[kind].append(path)
    return dict(found)
