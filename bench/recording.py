"""What recording costs a healthy job, and what a crash costs.

Each job runs in pairs of processes, recorded and not, that take turns. One item's mark is compared with
what a Python program would do instead: writing the same three values into a `ctypes` structure.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.result import Result, paired

NAME = "recording"
ROOT = Path(__file__).resolve().parent.parent


def run(quick: bool) -> list[Result]:
    pairs, turns = (4, 10) if quick else (20, 40)
    return [
        *marks(quick),
        *job("pool of 100 µs tasks, recorded", "pool", pairs, turns),
        *job("the same on multiprocessing.Pool, recorded", "multiprocessing_pool", pairs, turns),
        *job("DataLoader epoch 3×64×64, recorded", "dataloader", *((pairs, turns) if quick else (40, 20))),
        control("DataLoader epoch 3×64×64, neither recorded", "dataloader", *((2, 6) if quick else (40, 20))),
        enable(10 if quick else 50),
        *crash(5 if quick else 15),
    ]


def marks(quick: bool) -> list[Result]:
    """Nanoseconds to mark one item, begin and end together, with a key of ten letters."""
    rounds = 3 if quick else 9
    code = """
import ctypes, sys, time
import lastwords
from lastwords import _native
numbers = range(200_000)
class Slot(ctypes.Structure):
    _fields_ = [("index", ctypes.c_long), ("phase", ctypes.c_int), ("key", ctypes.c_char * 16)]
slot, begin, end, N = Slot(), _native.begin, _native.end, 200_000
def ours():
    for n in range(N): begin(n, "shard/0001", 1)
def each():
    for n in lastwords.each(numbers): pass
def both():
    for n in range(N): begin(n, "shard/0001", 1); end()
def peer():
    for n in range(N): slot.index = n; slot.phase = 1; slot.key = b"shard/0001"
def empty():
    for n in range(N): pass
def cost(f):
    t = time.perf_counter_ns(); f(); return (time.perf_counter_ns() - t) / N
print(min(cost(ours) for _ in range(9)) - (e := min(cost(empty) for _ in range(9))),
      min(cost(both) for _ in range(9)) - e, min(cost(peer) for _ in range(9)) - e,
      min(cost(each) for _ in range(9)) - e)
"""
    told = [tuple(map(float, recorded(["-c", code]).stdout.split())) for _ in range(rounds)]
    begin, both, peer, each = (statistics.median(one[n] for one in told) for n in range(4))
    return [
        Result(
            name="one slot update (peer: three ctypes stores)", ours=begin, peer=peer, unit="ns", limit=1.0
        ),
        Result(name="one item, begin and end (same peer)", ours=both, peer=peer, unit="ns"),
        Result(name="one item of lastwords.each (same peer)", ours=each, peer=peer, unit="ns"),
    ]


class Round(NamedTuple):
    """Nanoseconds, by the clock and of CPU in all processes of the job."""

    clock: int
    cpu: int


def job(name: str, subject: str, pairs: int, rounds: int) -> list[Result]:
    """Pairs of processes, so that a lucky layout of one heap counts once; turns within a pair, so that a noisy
    neighbour meets both. The CPU's time is the sharper measure where the machine has other things to do.
    """
    medians = [take_turns(subject, rounds, first=n % 2) for n in range(pairs)]
    ways = (
        (f"{name} ({pairs} pairs, {rounds} turns each)", 0),
        (f"{name}, in CPU time of all its processes", 1),
    )
    return [
        paired(words, [(ours[way] / 1e6, peer[way] / 1e6) for ours, peer in medians], "ms", limit=1.01)
        for words, way in ways
    ]


def control(name: str, subject: str, pairs: int, rounds: int) -> Result:
    """With nobody recorded: what two processes that do the same differ by."""
    medians = [take_turns(subject, rounds, first=n % 2, recorded=(False, False)) for n in range(pairs)]
    clocks = [(a.clock / 1e6, b.clock / 1e6) for a, b in medians]
    return paired(f"{name} ({pairs} pairs, {rounds} turns each)", clocks, "ms")


def take_turns(
    subject: str, rounds: int, *, first: int, recorded: tuple[bool, bool] = (True, False)
) -> tuple[Round, Round]:
    """The median round of two processes that live side by side and work by turns."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        partners = [
            stack.enter_context(_partner(subject, {"LASTWORDS": directory} if is_recorded else {}))
            for is_recorded in recorded
        ]
        times: tuple[list[Round], list[Round]] = ([], [])
        for n in range(rounds):
            for which in (0, 1) if n % 2 == first else (1, 0):
                times[which].append(one_round(partners[which]))
    return median(times[0]), median(times[1])


def median(rounds: list[Round]) -> Round:
    return Round(*(round(statistics.median(way)) for way in zip(*rounds, strict=True)))


def one_round(partner: subprocess.Popen[str]) -> Round:
    assert partner.stdin is not None and partner.stdout is not None
    partner.stdin.write("go\n")
    partner.stdin.flush()
    clock, cpu = map(int, partner.stdout.readline().split())
    return Round(clock, cpu)


def _partner(subject: str, variables: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench._subjects", subject],
        env=_without_lastwords() | variables,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Done(NamedTuple):
    stdout: str
    cpu: float


def plain(words: list[str]) -> Done:
    return _python(words, {})


def recorded(words: list[str]) -> Done:
    with tempfile.TemporaryDirectory() as directory:
        return _python(words, {"LASTWORDS": directory})


def _python(words: list[str], variables: dict[str, str]) -> Done:
    environment = _without_lastwords() | variables
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Done(done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _without_lastwords() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "LASTWORDS"}


def enable(starts: int) -> Result:
    """A recorded interpreter's start against one that is not, in milliseconds of CPU."""
    ours: list[float] = []
    peer: list[float] = []
    for _ in range(starts):
        for way, times in ((recorded, ours), (plain, peer)):
            times.append(way(["-c", "pass"]).cpu * 1e3)
    return Result(
        name="a whole start of Python, recorded",
        ours=statistics.median(ours),
        peer=statistics.median(peer),
        unit="ms",
    )


CRASH = "import sys, ctypes; {load}; ctypes.string_at(0)"


def crash(times: int) -> list[Result]:
    """The handler against its own promise of 1 ms, and the record's size on disk against 2 MB."""
    results = []
    for name, load in (("bare Python", "pass"), ("torch loaded", "import torch")):
        durations, sizes, autopsies = zip(
            *(one_crash(CRASH.format(load=load)) for _ in range(times)), strict=True
        )
        results += [
            Result(name=f"handler, {name} (peer: 1 ms)", ours=statistics.median(durations), peer=1e6, unit="ns",
                   limit=1.0),
            Result(name=f"record on disk, {name} (peer: 2 MB)", ours=max(sizes), peer=2e6, unit="B", limit=1.0),
            Result(name=f"autopsy, {name} (peer: 0.3 s)", ours=statistics.median(autopsies), peer=0.3, unit="s",
                   limit=1.0),
        ]  # fmt: skip
    return results


def one_crash(program: str) -> tuple[float, float, float]:
    """Nanoseconds in the handler, bytes on disk, seconds of autopsy."""
    from lastwords import _native

    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "LASTWORDS": directory}, check=False
        )
        (box,) = Path(directory).glob("*.box")
        begun = time.perf_counter()
        _native.autopsy_box(box)
        autopsy = time.perf_counter() - begun
        record = json.loads(_native.read_box(box))
        return record["crash"]["duration_ns"], box.stat().st_blocks * 512, autopsy
