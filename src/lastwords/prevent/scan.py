"""`scan`: what CPU every native library under some paths needs, and whether a given CPU has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial

from lastwords import _native
from lastwords.prevent import cpus, scan_cache, scan_files, scan_packages
from lastwords.prevent.scan_files import Found
from lastwords.prevent.scan_judge import Subject, judge, subject
from lastwords.prevent.scan_model import WORST_FIRST, Library
from lastwords.prevent.scan_report import MANY, ONE, Scanned
from lastwords.record.home import home as default_home

__all__ = ["Library", "read", "scan", "verdicts"]

Problem = Callable[[str, str], None]


def scan(
    paths: Iterable[str | os.PathLike[str]] = (),
    *,
    cpu: frozenset[str] | None = None,
    architecture: str | None = None,
    home: str | os.PathLike[str] | None = None,
    problem: Problem | None = None,
) -> list[Library]:
    """Every library under `paths` (default: this environment), judged for `cpu` (default: this one), worst first.

    `problem` is called with a path and one line for each file that could not be judged.
    """
    here = cpus.this_host() if cpu is None or architecture is None else None
    have = cpu if cpu is not None else here.features if here else frozenset()
    machine = architecture or (here.architecture if here else "x86_64")
    found = read(paths, home=default_home() if home is None else home, problem=problem)
    return verdicts(found, have, machine)


def verdicts(
    found: Iterable[Subject], cpu: frozenset[str], architecture: str, capabilities: Sequence[str] = ()
) -> list[Library]:
    """What was read, judged for one CPU, worst first."""
    judged = [judge(one, cpu, architecture, capabilities) for one in found]
    return sorted(judged, key=lambda library: (WORST_FIRST.index(library.verdict), library.path))


def read(
    paths: Iterable[str | os.PathLike[str]] = (),
    *,
    home: str | os.PathLike[str] | None = None,
    problem: Problem | None = None,
) -> list[Subject]:
    """Reads the libraries, or takes from the cache under `home` what it knows of them. `home` None: no cache."""
    say = problem or (lambda _path, _line: None)
    places = [os.path.abspath(path) for path in paths] or scan_files.default_places()
    wheels = [place for place in places if scan_files.is_wheel(place)]
    found = list(scan_files.libraries([place for place in places if place not in wheels], say))
    subjects = list(_subjects(found, _scanned(found, home), say))
    for wheel in wheels:
        subjects += _in_wheel(wheel, say)
    return subjects


def _subjects(found: list[Found], scanned: list[Scanned], say: Problem) -> Iterator[Subject]:
    for (path, _), one in zip(found, scanned, strict=True):
        if one.report is None:
            say(path, one.problem or "cannot be judged")
            continue
        if one.report.note:
            say(path, one.report.note)
        beside = partial(_names_beside, os.path.dirname(path))
        yield subject(path, one.report, scan_packages.owner(path), beside)


@lru_cache(maxsize=256)
def _names_beside(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _scanned(found: list[Found], home: str | os.PathLike[str] | None) -> list[Scanned]:
    cache = scan_cache.Cache(home)
    known = {one.path: cache.get(one) for one in found}
    unknown = [one for one in found if known[one.path] is None]
    ids = _native.isa_build_ids([one.path for one in unknown])
    for one, build_id in zip(unknown, ids, strict=True):
        known[one.path] = cache.get_by_build_id(one, build_id)
    # By what the cache calls it: a library that several packages bring along is read once.
    fresh = {
        scan_cache.key_of(one, build_id): one.path
        for one, build_id in zip(unknown, ids, strict=True)
        if known[one.path] is None
    }
    made = dict(zip(fresh, MANY.decode(_native.isa_scan(list(fresh.values()))), strict=True))
    for one, build_id in zip(unknown, ids, strict=True):
        if (scanned := made.get(scan_cache.key_of(one, build_id))) is not None:
            known[one.path] = scanned
            cache.put(one, build_id, scanned)
    cache.save()
    return [known[one.path] or Scanned(problem="cannot be judged") for one in found]


def _in_wheel(wheel: str, say: Problem) -> Iterator[Subject]:
    package = scan_packages.of_wheel(wheel)
    names: list[str] = []
    for member in scan_files.members(wheel, say):
        names.append(os.path.basename(member.name))
        path = f"{wheel}/{member.name}"
        scanned = ONE.decode(_native.isa_scan_bytes(member.data))
        if scanned.report is None:
            say(path, scanned.problem or "cannot be judged")
        else:
            yield subject(path, scanned.report, package, lambda: frozenset(names))
