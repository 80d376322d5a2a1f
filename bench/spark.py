"""What lastwords costs a healthy Spark job: a million rows through a Python function, with it and without.

All that it adds to a row it adds in the Python worker. What an executor sent to one is kept, and sent again to a worker
in a process of its own, by turns with our adapter and with pyspark's own functions in its place: that tells a nanosecond a
row. It is set against the CPU of the whole job, JVM included. (Whole jobs by turns differ by ten per cent from each other,
and one JVM from the next by more.) `range(n)` costs the JVM little: the worst case for us.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench._spark_capture import VARIABLE as CAPTURE
from bench.engines import Job, typical, within
from bench.result import Result

NAME = "spark"
ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.02
WARM = 3
"""Turns before it counts: a JVM compiles what it runs often."""
BUDGET = 100.0
"""Nanoseconds that counting one row may take."""

KINDS = {
    "udf": "1 million rows through a Python UDF",
    "pickled": "the same without Arrow, each row counted",
    "batches": "the same in pandas batches, by mapInPandas",
}

COUNTER = """
import itertools, time
from lastwords import recording
from collections import deque
recording.enable("bench")
N = 1_000_000
def cost(rows):
    begun = time.process_time_ns(); deque(rows, maxlen=0); return (time.process_time_ns() - begun) / N
batches = [[None] * 100] * (N // 100)
plain = min(cost(itertools.chain.from_iterable(batches)) for _ in range(5))
print(min(cost(recording.each_row(batches)) for _ in range(5)) - plain)
"""


def run(quick: bool) -> list[Result]:
    jobs, turns = (6, 12) if quick else (12, 60)
    with tempfile.TemporaryDirectory() as place:
        capture(place)
        whole = job_times(jobs)
        workers = {kind: worker_turns(f"{place}/{kind}", turns) for kind in KINDS}
    found = [counter(3 if quick else 9)]
    for kind, name in KINDS.items():
        found += accounted(f"Spark: {name}", whole[kind], workers[kind])
    return found


def accounted(name: str, whole: float, worker: Job) -> list[Result]:
    """The worker by itself, for information, and what it adds to the job."""
    ours, peer = (typical(times) for times in worker)
    low, high = within([worker])
    alone = Result(
        name=f"{name}, the worker alone ({len(worker[0])} turns)",
        ours=ours / 1e6,
        peer=peer / 1e6,
        unit="ms of CPU",
        interval=(low, high),
    )
    job = Result(
        name=f"{name} (the worker's difference, in CPU of all processes)",
        ours=(whole + ours - peer) / 1e6,
        peer=whole / 1e6,
        unit="ms of CPU",
        limit=LIMIT,
        interval=(1 + (low - 1) * peer / whole, 1 + (high - 1) * peer / whole),
    )
    return [alone, job]


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


def capture(place: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "bench._spark_driver"],
        env=environment() | {"PYSPARK_PYTHON": sys.executable, CAPTURE: place},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def job_times(turns: int) -> dict[str, float]:
    """Nanoseconds of CPU of a job of each kind, without lastwords in its worker."""
    times: dict[str, list[int]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as home, talking("bench._spark_driver", home) as driver:
        for turn in range(WARM + turns):
            for kind, found in times.items():
                took = one_turn(driver, f"{kind} 0")
                if turn >= WARM:
                    found.append(took)
    return {kind: typical(found) for kind, found in times.items()}


def worker_turns(sent: str, turns: int) -> Job:
    """Nanoseconds of CPU of each turn, with lastwords and without."""
    times: Job = ([], [])
    with tempfile.TemporaryDirectory() as home, talking("bench._spark_worker", home, sent) as worker:
        for turn in range(1 + turns):
            for with_us in (True, False) if turn % 2 else (False, True):
                took = one_turn(worker, f"{with_us:d}")
                if turn:
                    times[0 if with_us else 1].append(took)
    return times


def one_turn(partner: subprocess.Popen[str], words: str) -> int:
    """Nanoseconds of CPU."""
    assert partner.stdin is not None and partner.stdout is not None
    partner.stdin.write(f"{words}\n")
    partner.stdin.flush()
    line = partner.stdout.readline()
    if not line:
        raise RuntimeError(f"{partner.args!r} ended with {partner.wait()}")
    return int(line)


def talking(module: str, home: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env=environment() | {"LASTWORDS_HOME": home, "PYSPARK_PYTHON": sys.executable},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def environment() -> dict[str, str]:
    from tests.engines.spark.cluster import java_home

    known = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    one_collector = {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"}
    return known | one_collector | {"JAVA_HOME": java_home() or "", "SPARK_LOCAL_IP": "127.0.0.1"}
