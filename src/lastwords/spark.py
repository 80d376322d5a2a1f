"""lastwords for Apache Spark.

    spark = lastwords.spark.configure(SparkSession.builder).getOrCreate()
    good, bad = lastwords.spark.quarantine(frame, transform, schema="id long, score double")

docs/engines/spark.md tells the rest: `lastwords run -- spark-submit job.py` needs no change of code.
"""

from __future__ import annotations

from typing import Any, TypeVar

from lastwords.engines.spark import connect, driver
from lastwords.engines.spark.quarantine import quarantine
from lastwords.engines.spark.report import Death, deaths
from lastwords.engines.spark.settings import Wishes

__all__ = ["Death", "configure", "deaths", "quarantine"]

Builder = TypeVar("Builder")


def configure(builder: Builder, *, hang_after: float | None = None, kill_hung: bool = False) -> Builder:
    """Has the SparkContext that is made next explain the deaths of its Python workers. Returns the builder.

    With `hang_after`, a worker that is longer than so many seconds on one row or batch is explained in its
    executor's log; with `kill_hung` it is then killed, its task fails, and the driver's exception explains the hang.

    A session of a Spark Connect server that runs already (`builder.remote("sc://...")`) has that server's settings.
    """
    import importlib

    wishes = Wishes(hang_after, kill_hung)
    if connect.is_elsewhere(builder):
        connect.adapt(importlib.import_module(connect.MODULE))
        connect.tell_what_is_not_ours(wishes)
        return builder
    driver.wish(wishes)
    module: Any = importlib.import_module("pyspark")
    driver.adapt(importlib.import_module(module.SparkContext.__module__))
    return builder
