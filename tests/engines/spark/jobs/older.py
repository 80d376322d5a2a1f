"""For an older Spark with a local master: three kinds of function, each killed twice."""

from __future__ import annotations

import json
import os
import sys

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import lastwords.spark


def one(row):
    if row == 7:
        os._exit(3)
    return row


def all_of_them(batches):
    for rows in batches:
        if (rows.id == 7).any():
            os._exit(3)
        yield rows


def main():
    builder = (
        SparkSession.builder.master("local[1,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "4")
    )
    spark = lastwords.spark.configure(builder).getOrCreate()
    frame = spark.range(0, 10, 1, 2)
    jobs = {
        "rdd": lambda: spark.sparkContext.parallelize(list(range(10)), 2).map(one).collect(),
        "udf": lambda: frame.select(udf(one, "long")("id")).collect(),
        "map": lambda: frame.mapInPandas(all_of_them, "id long").collect(),
    }
    said = {"version": pyspark.__version__}
    for name, job in jobs.items():
        try:
            job()
        except Exception as error:  # noqa: BLE001, PERF203
            said[name] = str(error)
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
