"""A driver for `bench.spark`: one job of a million rows for each line on standard input, answered with nanoseconds.

Of CPU, of the driver with its JVM, its daemon and its worker together: what a busy neighbour takes does not count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROWS = 1_000_000


def udf(spark: Any) -> Callable[[], object]:
    from pyspark.sql.functions import udf as made_udf

    return through(spark, made_udf(plus_one, "long"))


def pickled(spark: Any) -> Callable[[], object]:
    from pyspark.sql.functions import udf as made_udf

    return through(spark, made_udf(plus_one, "long", useArrow=False))


def through(spark: Any, function: Any) -> Callable[[], object]:
    from pyspark.sql.functions import sum as total

    return lambda: spark.range(0, ROWS, 1, 1).select(total(function("id"))).collect()


def batches(spark: Any) -> Callable[[], object]:
    from pyspark.sql.functions import sum as total

    def more(frames: Iterator[Any]) -> Iterator[Any]:
        for rows in frames:
            yield rows + 1

    return lambda: spark.range(0, ROWS, 1, 1).mapInPandas(more, "id long").select(total("id")).collect()


def plus_one(row: int) -> int:
    return row + 1


def processor_time() -> int:
    """Nanoseconds of this process and all below it, the dead ones included that were waited for."""
    used, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15]))
    below, found = {os.getpid()}, 0
    while len(below) > found:
        found = len(below)
        below |= {pid for pid, parent in parents.items() if parent in below}
    return sum(used[pid] for pid in below) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("bench").config("spark.ui.enabled", "false")
    if sys.argv[2] == "with":
        import lastwords.spark

        builder = lastwords.spark.configure(builder)
    spark = builder.getOrCreate()
    one_round = {"udf": udf, "pickled": pickled, "batches": batches}[sys.argv[1]](spark)
    for _ in sys.stdin:
        begun = processor_time()
        one_round()
        sys.stdout.write(f"{processor_time() - begun}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
