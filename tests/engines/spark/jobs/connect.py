"""Spark Connect with a server of its own: a function that is well, and two that kill their worker."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


def one(row):
    return row


def bad(row):
    if row == 7:
        os._exit(3)
    return row


def all_of_them(batches):
    import ctypes

    for rows in batches:
        ctypes.string_at(0)
        yield rows


def main():
    builder = (
        SparkSession.builder.remote("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
    )
    spark = builder.getOrCreate()
    frame = spark.range(0, 10, 1, 2)
    said: dict[str, object] = {"well": len(frame.select(udf(one, "long")("id")).collect())}
    jobs = {
        "udf": lambda: frame.select(udf(bad, "long")("id")).collect(),
        "map": lambda: frame.mapInPandas(all_of_them, "id long").collect(),
    }
    for name, job in jobs.items():
        try:
            job()
        except Exception as error:  # noqa: BLE001, PERF203
            said[name] = {"type": f"{type(error).__module__}.{type(error).__name__}", "text": str(error)}
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
