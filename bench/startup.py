"""What lastwords costs a Python that does not use it: `python -c pass` in two fresh venvs, one with it installed.

The bootstrap's `.pth` line runs at every start of every interpreter in the environment, so this is the one cost that
people pay who never asked for anything.

The limit holds for environments as `python -m venv` makes them. In a bare one, without even pip, ours may be the only
`.pth` file there is, and then the interpreter's own first steps for such files count as ours too: shown beside it.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.result import Result

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


def run(quick: bool) -> list[Result]:
    return [
        compare("python -c pass, installed but off", quick, LIMIT),
        compare("the same in a venv without pip", quick, None, "--without-pip"),
    ]


def compare(name: str, quick: bool, limit: float | None, *venv_options: str) -> Result:
    ours = fresh_venv("with", *venv_options)
    peer = fresh_venv("without", *venv_options)
    pip(ours, "install", wheel())
    # All but lastwords itself: what click and rich cost by lying there is not the question.
    pip(peer, "install", wheel())
    pip(peer, "uninstall", "-y", "lastwords")
    pairs: list[tuple[int, int]] = []
    run_pairs(ours, peer, WARM_UP)
    for _ in range(1 if quick else MOST_ROUNDS):
        pairs += run_pairs(ours, peer, ROUND)
        low, high = interval(pairs)
        if high - low < NARROW:
            break
    return Result(
        name=f"{name} ({len(pairs)} runs each)",
        ours=statistics.median(pair[0] for pair in pairs) / 1e6,
        peer=statistics.median(pair[1] for pair in pairs) / 1e6,
        unit="ms",
        limit=limit,
        interval=(low, high),
    )


def run_pairs(ours: Path, peer: Path, count: int) -> list[tuple[int, int]]:
    return [measure(ours, peer, even=index % 2 == 0) for index in range(count)]


def measure(ours: Path, peer: Path, *, even: bool) -> tuple[int, int]:
    """One start of each, the order changing from pair to pair, so that neither always runs in the other's wake."""
    if even:
        first = start(ours)
        return first, start(peer)
    first = start(peer)
    return start(ours), first


def start(python: Path) -> int:
    """Nanoseconds of CPU from spawn to exit. A start does little but compute, and a busy neighbour does not count."""
    pid = os.posix_spawn(python, [str(python), "-c", "pass"], ENVIRONMENT)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise RuntimeError(f"{python} -c pass ended with status {status}")
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def interval(pairs: list[tuple[int, int]], draws: int = 400) -> tuple[float, float]:
    """The 95 % bootstrap interval of the ratio of medians; pairs are drawn whole, since they share their moment."""
    rng = random.Random(0)
    ratios = []
    for _ in range(draws):
        drawn = rng.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(a for a, _ in drawn) / statistics.median(b for _, b in drawn))
    ratios.sort()
    return ratios[int(draws * 0.025)], ratios[int(draws * 0.975) - 1]


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
