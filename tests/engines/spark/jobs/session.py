"""The SparkSession of every job here: small executors, one attempt unless a job wants more, one core per host."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

SCRATCH = os.environ["LW_TEST_PLACE"] + "/scratch"


def builder(name, failures=1, **settings):
    known = {
        "spark.master": os.environ["MASTER"],
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={SCRATCH}",
        "spark.cores.max": "2",
        "spark.task.maxFailures": str(failures),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.log.level": "OFF",
        **settings,
    }
    found = SparkSession.builder
    for key, value in known.items():
        found = found.config(key, value)
    return found
