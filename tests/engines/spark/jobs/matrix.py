"""Every way to die, in every kind of function, one after the other; prints what the driver's exceptions said."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pandas as pd
from pyspark.sql.functions import col, pandas_udf, udf, udtf
from session import builder  # type: ignore[import-not-found]  # beside this file

import lastwords.spark

ROOT = str(Path(__file__).resolve().parents[4])
ROWS = 10
BAD = 7
"""In two partitions: row 2 of partition 1."""


def die(how):
    import ctypes
    import signal

    if how == "segv":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit-0":
        os._exit(0)
    if how == "exit-3":
        os._exit(3)
    if how == "raise":
        raise ValueError("this row is bad")
    if how == "hang":
        time.sleep(600)
    if how == "ill":
        import runpy

        sys.path.insert(0, ROOT)
        runpy.run_path(f"{ROOT}/zoo/illegal-instruction/death.py")["die"](0)
    if how == "memory":
        rows = bytearray()
        while True:
            rows += b"x" * (16 << 20)


def rdd(spark, how):
    def one(row):
        if row == BAD:
            die(how)
        return row

    return spark.sparkContext.parallelize(list(range(ROWS)), 2).map(one).collect()


def generated(spark, how):
    """`parallelize(range())` sends no data: the rows are made in the worker."""

    def one(row):
        if row == BAD:
            die(how)
        return row

    return spark.sparkContext.parallelize(range(ROWS), 2).map(one).collect()


def row_udf(spark, how):
    @udf("long")
    def one(row):
        if row == BAD:
            die(how)
        return row

    return spark.range(0, ROWS, 1, 2).select(one("id")).collect()


def arrow_udf(spark, how):
    @udf("long", useArrow=True)
    def one(row):
        if row == BAD:
            die(how)
        return row

    return spark.range(0, ROWS, 1, 2).select(one("id")).collect()


def series_udf(spark, how):
    @pandas_udf("long")
    def some(rows: pd.Series) -> pd.Series:
        if (rows == BAD).any():
            die(how)
        return rows

    return spark.range(0, ROWS, 1, 2).select(some("id")).collect()


def map_in_pandas(spark, how):
    def all_of_them(batches):
        for rows in batches:
            if (rows.id == BAD).any():
                die(how)
            yield rows

    return spark.range(0, ROWS, 1, 2).mapInPandas(all_of_them, "id long").collect()


def map_in_arrow(spark, how):
    def all_of_them(batches):
        for rows in batches:
            if BAD in rows["id"].to_pylist():
                die(how)
            yield rows

    return spark.range(0, ROWS, 1, 2).mapInArrow(all_of_them, "id long").collect()


def apply_in_pandas(spark, how):
    def group(rows):
        if (rows.id == BAD).any():
            die(how)
        return rows

    return spark.range(0, ROWS, 1, 2).groupBy(col("id") % 3).applyInPandas(group, "id long").collect()


def table_function(spark, how):
    @udtf(returnType="x long")
    class Twice:
        def eval(self, x):
            if x == BAD:
                die(how)
            yield (x,)
            yield (x,)

    spark.udtf.register("twice", Twice)
    return spark.sql(f"select t.x from range(0, {ROWS}, 1, 2) r, lateral twice(r.id) t").collect()


KINDS = {
    one.__name__: one
    for one in (
        rdd,
        generated,
        row_udf,
        arrow_udf,
        series_udf,
        map_in_pandas,
        map_in_arrow,
        apply_in_pandas,
        table_function,
    )
}


def cancel(spark):
    """A job that the user stops: Spark kills its workers, and nobody has died."""
    context = spark.sparkContext
    ended = []
    # Spark's own tracker may tell of a running task ten seconds late: its worker would be taken for hung by then.
    mark = os.environ["LW_TEST_PLACE"] + "/is-running"

    def sleep(_):
        open(mark, "x").close()
        time.sleep(600)

    def run():
        try:
            context.parallelize([1], 1).map(sleep).collect()
        except Exception as error:  # noqa: BLE001
            ended.append(type(error).__name__)

    job = threading.Thread(target=run)
    job.start()
    while not os.path.exists(mark) and job.is_alive():
        time.sleep(0.01)
    context.cancelAllJobs()
    job.join()
    return ended


def main():
    events = Path(os.environ["LW_TEST_PLACE"], "events")
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    session = lastwords.spark.configure(builder("matrix", **settings), hang_after=4.0, kill_hung=True)
    spark = session.getOrCreate()
    said = {}
    for case in sys.argv[1:]:
        kind, _, how = case.partition(":")
        try:
            KINDS[kind](spark, how)
            said[case] = {"type": None, "text": ""}
        except Exception as error:  # noqa: BLE001
            said[case] = {"type": type(error).__name__, "text": str(error)}
    said["cancelled"] = cancel(spark)
    with open(os.environ["LW_TEST_PLACE"] + "/matrix.json", "w") as file:
        json.dump(said, file)
    spark.stop()


if __name__ == "__main__":
    main()
