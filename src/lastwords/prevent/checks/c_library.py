"""glibc or musl, and libstdc++: versions, libraries that ask for newer ones, and a second copy in one process.

A wheel says in its name what it needs and pip believes it; an environment that was copied, mounted or built elsewhere
says nothing, and ends in "version `GLIBC_2.38' not found".
"""

from __future__ import annotations

import glob
import os
import platform
import re
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lastwords.prevent import symbol_versions
from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine, note
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.symbol_versions import Version, words

_VERSION = re.compile(rb"GLIBCXX_(\d+)\.(\d+)(?:\.(\d+))?\0")
LARGEST = 64 << 20
MOST_NAMED = 4
SYSTEM = ("/usr/lib/*/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/lib/*/libstdc++.so.6")


@dataclass(frozen=True, slots=True)
class CLibrary:
    name: str
    """`glibc 2.36`, `musl`."""
    standard: tuple[tuple[str, Version | None], ...]
    """Copies of libstdc++, each with the newest symbols it offers: those of one process, else the system's."""
    were_loaded: bool = False
    """The copies were in one process."""
    needs: Mapping[str, Mapping[str, Version]] = field(default_factory=dict)
    """What installed libraries ask for, by their paths."""


def measure(patient: Patient) -> CLibrary:
    asked = patient.interpreter if patient.trial is None else None
    loaded = {os.path.realpath(path) for path in (asked.libraries if asked else ()) if "libstdc++" in path}
    system = {os.path.realpath(path) for pattern in SYSTEM for path in glob.glob(pattern)}
    copies = tuple((path, newest_symbols(path)) for path in sorted(loaded or system))
    name = " ".join(part for part in platform.libc_ver() if part) or _musl() or "unknown"
    return CLibrary(name, copies, bool(loaded), _needs() if patient.scans else {})


def _musl() -> str | None:
    return "musl" if glob.glob("/lib/ld-musl-*.so.1") else None


def _needs() -> dict[str, dict[str, Version]]:
    places = dict.fromkeys(sysconfig.get_path(name) for name in ("platlib", "purelib"))
    found = {path: symbol_versions.needed_by(path) for path in symbol_versions.libraries_in(places)}
    return {path: needs for path, needs in found.items() if needs}


def newest_symbols(path: str) -> Version | None:
    try:
        with open(path, "rb") as file:
            found = _VERSION.findall(file.read(LARGEST))
    except OSError:
        return None
    return max((tuple(int(part or 0) for part in one) for one in found), default=None)


def judge(found: CLibrary, job: Job) -> Iterator[Finding]:
    del job
    newest = max((version for _, version in found.standard if version is not None), default=None)
    bad = [*_too_old(found, newest), *_copies(found)]
    yield from bad
    if bad:
        return
    measured = tuple(f"{path}: up to GLIBCXX_{words(version or ())}" for path, version in found.standard)
    if found.name == "musl":
        yield note(
            "this system has musl: wheels for manylinux do not load here, those for musllinux do", *measured
        )
        return
    says = found.name + (f", libstdc++ with GLIBCXX_{words(newest)}" if newest else "")
    yield fine(f"{says}{f', enough for {len(found.needs)} libraries' if found.needs else ''}", *measured)


def _too_old(found: CLibrary, newest: Version | None) -> Iterator[Finding]:
    library, _, version = found.name.partition(" ")
    if library == "glibc" and re.fullmatch(r"\d+(\.\d+)+", version):
        yield from _asking_for_more("GLIBC", tuple(map(int, version.split("."))), found)
    if newest is not None:
        yield from _asking_for_more("GLIBCXX", newest, found)


def _asking_for_more(kind: str, have: Version, found: CLibrary) -> Iterator[Finding]:
    asking = {path: needs[kind] for path, needs in found.needs.items() if needs.get(kind, ()) > have}
    if not asking:
        return
    library = "glibc" if kind == "GLIBC" else "libstdc++"
    names = sorted({os.path.basename(path) for path in asking})
    shown = ", ".join(names[:MOST_NAMED]) + (
        f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )
    yield Finding(
        severity="risk",
        says=f"{shown} cannot be loaded: {kind}_{words(max(asking.values()))} is asked for, and there is {words(have)}",
        measured=tuple(
            f"{path} asks for {kind}_{words(one)} (.gnu.version_r)"
            for path, one in sorted(asking.items())[:3]
        ),
        fixes=(
            Fix("install the packages anew on this system, so that wheels for it are chosen"),
            Fix(f"or use an image with a {library} that is new enough"),
        ),
        facts={"libraries": tuple(names[:50])},
    )


def _copies(found: CLibrary) -> Iterator[Finding]:
    if not found.were_loaded or len(found.standard) < 2:
        return
    yield Finding(
        severity="risk",
        says=f"{len(found.standard)} copies of libstdc++ in one process: exceptions and strings do not cross between them",
        measured=tuple(f"{path}: up to GLIBCXX_{words(version or ())}" for path, version in found.standard),
        fixes=(
            Fix("let one be used by all: the newest, first in the search path"),
            Fix("see who loads which", "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep libstdc"),
        ),
    )


CHECK = Check("c-library", "the C and C++ runtimes", measure, judge)
