"""What really happens, kept under build/ground-truth: a package is installed once and run once on each emulated CPU.

What a scan says of it is not kept here: it is read again each time, so a better scanner is scored in minutes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from tests.prevent.ground_truth import packages
from tests.prevent.ground_truth.packages import LISTS, Outcome

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "build" / "ground-truth"
AT_ONCE = 2


def site_of(package: str) -> Path:
    """One folder each: two packages may want two versions of a third. uv links files, so that costs little."""
    return KEPT / "sites" / package


def installed(package: str) -> bool:
    try:
        packages.install([package], site_of(package))
    except subprocess.CalledProcessError:
        return False
    return True


def find(names: Iterable[str], cpus: Iterable[str], until: float) -> None:
    """Runs what is not known yet, a CPU after the other; nothing is begun after `until` (of time.monotonic)."""
    work = [(name, cpu) for cpu in cpus for name in names]
    os.nice(max(0, 10 - os.nice(0)))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        teller = packages.compile_teller(Path(folder))
        for line in pool.map(lambda one: _find_one(one[0], one[1], teller, until), work):
            if line:
                print(line, file=sys.stderr, flush=True)


def _find_one(package: str, cpu: str, teller: Path, until: float) -> str | None:
    if time.monotonic() > until:
        return None
    if not installed(package):
        return f"{package}: no wheel for this machine"
    if known(package, cpu) is not None:
        return None
    outcome = packages.run(package, workload_of(package), cpu, site_of(package), teller)
    place = _place(package, cpu)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(msgspec.json.encode(_with_short_paths(outcome)))
    return f"{package} on {cpu}: {outcome.end}"


def known(package: str, cpu: str) -> Outcome | None:
    """As it was seen, with whole paths; None: not run yet, or run as another version."""
    try:
        kept = msgspec.json.decode(_place(package, cpu).read_bytes(), type=Outcome)
    except (OSError, msgspec.MsgspecError):
        return None
    site = site_of(package).resolve()
    return msgspec.structs.replace(
        kept,
        library=str(site / kept.library) if kept.library else None,
        loaded=tuple(str(site / path) for path in kept.loaded),
    )


def _with_short_paths(outcome: Outcome) -> Outcome:
    site = f"{site_of(outcome.package).resolve()}/"
    return msgspec.structs.replace(
        outcome,
        library=outcome.library.removeprefix(site) if outcome.library else None,
        loaded=tuple(path.removeprefix(site) for path in outcome.loaded),
    )


def workload_of(package: str) -> str:
    return next(LISTS[name][package] for name in ("tuned", "scored") if package in LISTS[name])


def versions(package: str) -> dict[str, str]:
    return dict(_versions(package))


@cache
def _versions(package: str) -> tuple[tuple[str, str], ...]:
    found: Iterator[tuple[str, str]] = (
        (str(one.metadata["Name"]).replace("_", "-").lower(), one.version)
        for one in distributions(path=[str(site_of(package))])
    )
    return tuple(sorted(found))


def _place(package: str, cpu: str) -> Path:
    about = (sys.version, emulator(), workload_of(package), _versions(package))
    key = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
    return KEPT / "outcomes" / f"{package}-{cpu.replace(',', '')}-{key}.json"


@cache
def emulator() -> str:
    done = subprocess.run(["qemu-x86_64", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else "none"
