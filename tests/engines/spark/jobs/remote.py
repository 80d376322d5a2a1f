"""A client of a Spark Connect server elsewhere: argv has its address and the cases. Prints what its own code caught."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, pandas_udf, udf, udtf

ROWS = 10
BAD = 7
"""In two partitions: row 2 of partition 1."""


def die(how):
    if how == "segv":
        import ctypes

        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit-3":
        os._exit(3)
    if how == "raise":
        raise ValueError("this row is bad")
    if how == "hang":
        time.sleep(600)


def row(frame, how):
    def one(number):
        if number == BAD:
            die(how)
        return number

    return frame.select(udf(one, "long", useArrow=False)("id")).collect()


def arrow(frame, how):
    def one(number):
        if number == BAD:
            die(how)
        return number

    return frame.select(udf(one, "long", useArrow=True)("id")).collect()


def series(frame, how):
    @pandas_udf("long")
    def some(rows):
        if (rows == BAD).any():
            die(how)
        return rows

    return frame.select(some("id")).collect()


def batches(frame, how):
    def all_of_them(parts):
        for rows in parts:
            if (rows.id == BAD).any():
                die(how)
            yield rows

    return frame.mapInPandas(all_of_them, "id long").collect()


def groups(frame, how):
    def group(rows):
        if (rows.id == BAD).any():
            die(how)
        return rows

    return frame.groupBy(col("id") % 3).applyInPandas(group, "id long").collect()


def table(frame, how):
    @udtf(returnType="x long")
    class Twice:
        def eval(self, number):
            if number == BAD:
                die(how)
            yield (number,)

    frame.sparkSession.udtf.register("twice", Twice)
    return frame.sparkSession.sql(
        f"select t.x from range(0, {ROWS}, 1, 2) r, lateral twice(r.id) t"
    ).collect()


KINDS = {one.__name__: one for one in (row, arrow, series, batches, groups, table)}


def main():
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    frame = spark.range(0, ROWS, 1, 2)
    said: dict[str, object] = {"well": len(row(frame, "nothing"))}
    for case in sys.argv[2:]:
        kind, _, how = case.partition(":")
        try:
            KINDS[kind](frame, how)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is printed
            name = f"{type(error).__module__}.{type(error).__name__}"
            said[case] = {"type": name, "text": str(error), "notes": getattr(error, "__notes__", [])}
    said["has lastwords"] = "lastwords" in sys.modules
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main()
