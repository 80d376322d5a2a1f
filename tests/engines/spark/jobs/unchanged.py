"""A job that knows nothing of lastwords: the first attempts of what runs on the other host die, and a retry hides it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark import TaskContext
from session import builder  # type: ignore[import-not-found]  # beside this file


def main():
    attempts = int(sys.argv[1])
    spark = builder("unchanged", failures=int(os.environ.get("LW_TEST_FAILURES", "4"))).getOrCreate()
    meeting = tempfile.mkdtemp(dir=os.environ["LW_TEST_PLACE"])
    together = min(2, spark.sparkContext.defaultParallelism)

    def task(row):
        # Each waits for the other, where there are two hosts: so both have one of the two.
        Path(meeting, str(row)).touch()
        while len(os.listdir(meeting)) < together:
            time.sleep(0.01)
        if (
            os.environ.get("LW_TEST_HOST", "other") == "other"
            and TaskContext.get().attemptNumber() < attempts
        ):
            os.kill(os.getpid(), 9)
        return row

    rows = spark.sparkContext.parallelize([1, 2], 2).map(task).collect()
    sys.stdout.write(f"rows {rows}\n")
    spark.stop()


if __name__ == "__main__":
    main()
