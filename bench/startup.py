"""What lastwords costs a Python that does not use it: `python -c pass` in two fresh venvs, one with it installed.

The bootstrap's `.pth` line runs at every start of every interpreter in the environment, so this is the one cost that
people pay who never asked for anything.

The limit holds for environments as `python -m venv` makes them. In a bare one, without even pip, ours may be the only
`.pth` file there is, and then the interpreter's own first steps for such files count as ours too: shown beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.result import Result, interval, paired

NAME = "startup"
LIMIT = 1.01

ROOT = Path(__file__).resolve().parent.parent
AREA = ROOT / ".venv-bench"
BIN = Path(sys.executable).parent

ENVIRONMENT = {"PATH": os.defpath, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
WARM_UP = 20
ROUND = 200
# A start takes about 10 ms and varies by several per cent: rounds are added until the interval is this narrow, so
# that one per cent can be told from none. The stopping rule looks at the width alone, never at the ratio.
NARROW = 0.006
MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Start:
    """Nanoseconds from spawn to exit."""

    cpu: int
    clock: int


Pairs = list[tuple[Start, Start]]


def run(quick: bool) -> list[Result]:
    usual = compare(quick)
    bare = compare(quick, "--without-pip")
    return [
        result("python -c pass, installed but off, in CPU time", usual, cpu_of, LIMIT),
        result("the same by the clock", usual, clock_of, LIMIT),
        result("in a venv without pip, in CPU time", bare, cpu_of, None),
    ]


def cpu_of(start: Start) -> int:
    """A start does little but compute, and a busy neighbour does not count."""
    return start.cpu


def clock_of(start: Start) -> int:
    """What somebody waits for, the kernel's work before and after it included."""
    return start.clock


def result(name: str, pairs: Pairs, of: Callable[[Start], int], limit: float | None) -> Result:
    figures = [(of(ours) / 1e6, of(peer) / 1e6) for ours, peer in pairs]
    return paired(f"{name} ({len(pairs)} runs each)", figures, "ms", limit=limit)


def compare(quick: bool, *venv_options: str) -> Pairs:
    ours = fresh_venv("with", *venv_options)
    peer = fresh_venv("without", *venv_options)
    pip(ours, "install", wheel())
    # All but lastwords itself: what click and rich cost by lying there is not the question.
    pip(peer, "install", wheel())
    pip(peer, "uninstall", "-y", "lastwords")
    pairs: Pairs = []
    run_pairs(ours, peer, WARM_UP)
    for _ in range(1 if quick else MOST_ROUNDS):
        pairs += run_pairs(ours, peer, ROUND)
        low, high = interval([(cpu_of(one), cpu_of(other)) for one, other in pairs])
        if high - low < NARROW:
            break
    return pairs


def run_pairs(ours: Path, peer: Path, count: int) -> Pairs:
    return [measure(ours, peer, even=index % 2 == 0) for index in range(count)]


def measure(ours: Path, peer: Path, *, even: bool) -> tuple[Start, Start]:
    """One start of each, the order changing from pair to pair, so that neither always runs in the other's wake."""
    if even:
        first = start(ours)
        return first, start(peer)
    first = start(peer)
    return start(ours), first


def start(python: Path) -> Start:
    began = time.monotonic_ns()
    pid = os.posix_spawn(python, [str(python), "-c", "pass"], ENVIRONMENT)
    _, status, usage = os.wait4(pid, 0)
    clock = time.monotonic_ns() - began
    if status != 0:
        raise RuntimeError(f"{python} -c pass ended with status {status}")
    return Start(round((usage.ru_utime + usage.ru_stime) * 1e9), clock)


def fresh_venv(name: str, *options: str) -> Path:
    folder = AREA / name
    shutil.rmtree(folder, ignore_errors=True)
    # From the interpreter under this venv, so that both are one step away from the same one.
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    quiet([base, "-m", "venv", *options, folder])
    return folder / "bin" / "python"


def pip(python: Path, *words: str | Path) -> None:
    quiet([sys.executable, "-m", "pip", "--python", python, "-q", *words])


@cache
def wheel() -> Path:
    """What a user gets; an editable install would add a .pth of its own."""
    folder = AREA / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    quiet([BIN / "maturin", "build", "--release", "--locked", "--out", folder])
    return next(folder.glob("*.whl"))


def quiet(command: list[str | Path]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
