"""`lastwords scan` against the tools that people use to see which instructions a library holds.

The peers list every instruction of the file and know nothing of guards; ours decides what runs unguarded, too. They are
those of elfx86exts (`cargo install elfx86exts`), objdump and llvm-objdump that are installed; a missing one is left out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from bench.result import Result

NAME = "scan"
PEERS = {"elfx86exts": ["elfx86exts"], "objdump": ["objdump", "-d"], "llvm-objdump": ["llvm-objdump", "-d"]}
LIMITS = {"elfx86exts": 0.1, "objdump": 0.05, "llvm-objdump": 0.06}
MOST_MEMORY = 500.0
ONE = "import sys; from lastwords import _native; _native.isa_scan([sys.argv[1]])"
ALL = "import sys; from lastwords.prevent.scan import read; read(sys.argv[2:], home=sys.argv[1] or None)"


def run(quick: bool) -> list[Result]:
    subject = _subject(quick)
    results = _one_file(subject)
    if not quick:
        results += _environment(Path(sysconfig.get_path("platlib")))
    return results


def _subject(quick: bool) -> Path:
    """libtorch_cpu.so, 280 MB of code; in a quick run the largest library of numpy."""
    name = "numpy" if quick else "torch"
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"bench scan needs {name}: make bench installs it")
    if not quick:
        return Path(found.origin).parent / "lib" / "libtorch_cpu.so"
    return max(Path(found.origin).parents[1].glob("numpy*/**/*.so*"), key=lambda path: path.stat().st_size)


def _one_file(subject: Path) -> list[Result]:
    _read_once(subject)
    ours = min(_timed([sys.executable, "-c", ONE, str(subject)]) for _ in range(3))
    found = [
        Result(
            name=f"{subject.name}, against {name}",
            ours=ours,
            peer=_timed([*words, str(subject)]),
            unit="s",
            limit=LIMITS[name],
        )
        for name, words in PEERS.items()
        if shutil.which(words[0])
    ]
    peak = _peak_of_scan(subject)
    return [
        *found,
        Result(
            name=f"{subject.name}, memory against 500 MB",
            ours=peak / 1024,
            peer=MOST_MEMORY,
            unit="MB",
            limit=1,
        ),
    ]


def _environment(site: Path) -> list[Result]:
    for path in site.rglob("*.so*"):
        if path.is_file():
            _read_once(path)
    with tempfile.TemporaryDirectory() as home:
        first = _timed([sys.executable, "-c", ALL, home, str(site)])
        again = min(_timed([sys.executable, "-c", ALL, home, str(site)]) for _ in range(3))
    size = sum(path.stat().st_size for path in site.rglob("*.so*") if path.is_file()) / 1e9
    return [
        Result(
            name=f"site-packages ({size:.1f} GB of libraries), from the cache against without",
            ours=again,
            peer=first,
            unit="s",
            limit=0.1,
        )
    ]


def _read_once(path: Path) -> None:
    """Into the page cache: the disk is not what is measured."""
    with path.open("rb") as file:
        while file.read(16 << 20):
            pass


def _timed(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def _peak_of_scan(subject: Path) -> int:
    """KiB, of a process that scans this file alone."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", ONE, str(subject)], os.environ)
    _, _, used = os.wait4(child, 0)
    return used.ru_maxrss
