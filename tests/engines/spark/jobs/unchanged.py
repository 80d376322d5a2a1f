"""A job that knows nothing of lastwords: the first attempts of what runs on the other host die, and a retry hides it."""

from __future__ import annotations

import os
import sys
import time

from pyspark import TaskContext
from session import builder  # type: ignore[import-not-found]  # beside this file


def main():
    attempts = int(sys.argv[1])

    def task(row):
        time.sleep(0.5)  # long enough for both hosts to get one of the two tasks
        if (
            os.environ.get("LW_TEST_HOST", "other") == "other"
            and TaskContext.get().attemptNumber() < attempts
        ):
            os.kill(os.getpid(), 9)
        return row

    spark = builder("unchanged", failures=int(os.environ.get("LW_TEST_FAILURES", "4"))).getOrCreate()
    rows = spark.sparkContext.parallelize([1, 2], 2).map(task).collect()
    sys.stdout.write(f"rows {rows}\n")
    spark.stop()


if __name__ == "__main__":
    main()
