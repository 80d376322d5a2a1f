"""A client of a Spark Connect server elsewhere, one of whose workers dies and is replaced. argv: the server's address, a file
that the death leaves behind (`-`: nobody dies), and how the program ends.
"""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import lastwords.spark
from lastwords.engines.spark import connect_report

BAD = 7
"""In two partitions: row 2 of partition 1."""


def main():
    url, mark, end = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()

    def one(number):
        if number == BAD and mark != "-" and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(3)
        return number

    print(len(spark.range(0, 10, 1, 2).select(udf(one, "long", useArrow=False)("id")).collect()), flush=True)
    if end == "asks":
        print([(one.how, one.item) for one in lastwords.spark.deaths(spark)])
    if end == "is left alone":
        sys.stdin.readline()  # the server goes meanwhile
        began = time.monotonic()
        connect_report.tell(spark.client)
        print(time.monotonic() - began, flush=True)
        os._exit(0)  # pyspark's own end tries for minutes to release the session
    if end != "just ends":
        spark.stop()


if __name__ == "__main__":
    main()
