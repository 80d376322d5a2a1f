"""What lastwords costs a healthy Spark job: a million rows through a Python function, with it and without.

Two drivers with a local master live side by side and work by turns. `range(n)` costs the JVM little, so that what is
measured is the Python worker and its pipe: the worst case for us. Of CPU, because a turn takes seconds and the other
driver's JVM, which collects its garbage when it likes, is a neighbour too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.result import Result
from bench.startup import interval

NAME = "spark"
ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.02
BUDGET = 100.0
"""Nanoseconds that counting one row may take."""

KINDS = {
    "udf": "1 million rows through a Python UDF",
    "pickled": "the same without Arrow, each row counted",
    "batches": "the same in pandas batches (mapInPandas)",
}

COUNTER = """
import itertools, time
import lastwords
from lastwords import recording
from collections import deque
recording.enable("bench")
N = 1_000_000
def cost(rows):
    begun = time.process_time_ns(); deque(rows, maxlen=0); return (time.process_time_ns() - begun) / N
plain = min(cost(itertools.repeat(1, N)) for _ in range(5))
print(min(cost(lastwords.each(itertools.repeat(1, N))) for _ in range(5)) - plain)
"""


def run(quick: bool) -> list[Result]:
    pairs, turns = (2, 8) if quick else (5, 16)
    return [
        counter(3 if quick else 9),
        *(job(f"Spark: {name}", kind, pairs, turns) for kind, name in KINDS.items()),
    ]


def counter(rounds: int) -> Result:
    """The peer is the budget: a ratio of 1 is all of it."""
    with tempfile.TemporaryDirectory() as home:
        known = environment() | {"LASTWORDS_HOME": home}
        costs = [
            float(subprocess.check_output([sys.executable, "-c", COUNTER], env=known, cwd=ROOT))
            for _ in range(rounds)
        ]
    return Result(
        name=f"Spark: counting one row (peer: its budget of {BUDGET:g} ns)",
        ours=statistics.median(costs),
        peer=BUDGET,
        unit="ns",
        limit=1.0,
    )


def job(name: str, kind: str, pairs: int, turns: int) -> Result:
    """The best turn of each driver: a JVM adds garbage collections and compilations to the others, as it likes."""
    best = [take_turns(kind, turns, first=number % 2) for number in range(pairs)]
    return Result(
        name=f"{name} ({pairs} pairs of drivers, best of {turns} turns)",
        ours=statistics.median(ours for ours, _ in best) / 1e6,
        peer=statistics.median(peer for _, peer in best) / 1e6,
        unit="ms of CPU",
        limit=LIMIT,
        interval=interval(best),
    )


def take_turns(kind: str, turns: int, *, first: int) -> tuple[int, int]:
    """Nanoseconds of CPU of the best turn, with lastwords and without."""
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        partners = [stack.enter_context(driver(kind, home, with_us=with_us)) for with_us in (True, False)]
        for partner in partners:
            for _ in range(3):  # the JVM compiles what it runs often
                one_turn(partner)
        times: tuple[list[int], list[int]] = ([], [])
        for number in range(turns):
            for which in (0, 1) if number % 2 == first else (1, 0):
                times[which].append(one_turn(partners[which]))
    return min(times[0]), min(times[1])


def one_turn(partner: subprocess.Popen[str]) -> int:
    """Nanoseconds of CPU."""
    assert partner.stdin is not None and partner.stdout is not None
    partner.stdin.write("go\n")
    partner.stdin.flush()
    line = partner.stdout.readline()
    if not line:
        raise RuntimeError(f"the driver ended with {partner.wait()}")
    return int(line)


def driver(kind: str, home: str, *, with_us: bool) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "bench._spark_driver", kind, "with" if with_us else "without"]
    known = environment() | {"LASTWORDS_HOME": home, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        words,
        env=known,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def environment() -> dict[str, str]:
    from tests.engines.spark.cluster import java_home

    known = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    return known | {"JAVA_HOME": java_home() or "", "SPARK_LOCAL_IP": "127.0.0.1"}
