"""A driver for `bench.spark`: for each line on standard input, which says the kind and whether with our adapter, one job of
a million rows; answered with nanoseconds.

Of CPU, of the driver with its JVM, its daemon and its worker together: what a busy neighbour takes does not count.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench._spark_capture import VARIABLE as CAPTURE
from bench._switch import switch

ROWS = 1_000_000
IN_WORKER = [
    "pyspark.worker:read_command",
    "pyspark.worker:read_udfs",
    "pyspark.worker:read_udtf",
    "pyspark.worker:read_single_udf",
    "pyspark.worker:handle_worker_exception",
]
"""What our adapter has put in front of pyspark's own: it decides there whether rows are counted."""

Call = Callable[[Any], Any]


def udf(spark: Any, call: Call, rows: int) -> int:
    return through(spark, call, rows, arrow=True)


def pickled(spark: Any, call: Call, rows: int) -> int:
    return through(spark, call, rows, arrow=False)


def through(spark: Any, call: Call, rows: int, *, arrow: bool) -> int:
    from pyspark.sql.functions import sum as total
    from pyspark.sql.functions import udf as made

    function = made(call, "long", useArrow=arrow)
    return int(spark.range(0, rows, 1, 1).select(total(function("id"))).collect()[0][0])


def batches(spark: Any, call: Call, rows: int) -> int:
    from pyspark.sql.functions import sum as total

    def more(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame.assign(id=call(frame.id))

    return int(spark.range(0, rows, 1, 1).mapInPandas(more, "id long").select(total("id")).collect()[0][0])


KINDS = {kind.__name__: kind for kind in (udf, pickled, batches)}


def plus_one(row: Any) -> Any:
    return row + 1


def switched(spark: Any, kind: str, *, with_us: bool) -> int:
    """In the worker, which is used again by the next job of its kind. Its pid: the sum of one row."""
    return KINDS[kind](spark, lambda _: switch(IN_WORKER, with_us), 1)


def processor_time() -> int:
    """Nanoseconds of this process and all below it, the dead ones included that were waited for."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        pid = int(stat.parent.name)
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            used[pid] = time.clock_gettime_ns(_clock_of(pid)) + _of_its_dead(fields)
        except OSError:
            continue
        parents[pid] = int(fields[1])
    below, found = {os.getpid()}, 0
    while len(below) > found:
        found = len(below)
        below |= {pid for pid, parent in parents.items() if parent in below}
    return sum(used[pid] for pid in below)


def _clock_of(pid: int) -> int:
    """What clock_getcpuclockid(3) makes of it: /proc counts in hundredths of a second, and a turn is a few of them."""
    return (~pid << 3) | 2


def _of_its_dead(fields: list[str]) -> int:
    return sum(map(int, fields[13:15])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def builder() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.master("local[1]").appName("bench").config("spark.ui.enabled", "false")


def capture(place: Path) -> None:
    """One job of each kind without lastwords; what its worker was sent is then in the file of that name."""
    spark = (
        builder()
        .config("spark.python.daemon.module", "bench._spark_capture")
        .config("spark.python.worker.reuse", "false")
        .config("spark.python.unix.domain.socket.enabled", "false")
        .config("spark.executorEnv.PYTHONPATH", os.getcwd())
        .getOrCreate()
    )
    for name, kind in KINDS.items():
        kind(spark, plus_one, ROWS)
        new = [file for file in place.iterdir() if file.name not in KINDS]
        max(new, key=lambda file: file.stat().st_size).rename(place / name)
    spark.stop()


def main() -> None:
    import lastwords.spark

    if place := os.environ.get(CAPTURE):
        capture(Path(place))
        return
    spark = lastwords.spark.configure(builder()).getOrCreate()
    workers: dict[str, int] = {}
    for line in sys.stdin:
        kind, with_us = line.split()
        worker = switched(spark, kind, with_us=bool(int(with_us)))
        begun = processor_time()
        KINDS[kind](spark, plus_one, ROWS)
        took = processor_time() - begun
        if workers.setdefault(kind, worker) != worker:
            raise SystemExit("the rows went to another worker, which was not switched")
        sys.stdout.write(f"{took}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
