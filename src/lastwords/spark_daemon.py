"""`spark.python.daemon.module lastwords.spark_daemon`, for clusters on whose hosts lastwords is installed.

The daemon itself is one file that can also travel alone, to hosts without lastwords.
"""

from lastwords.engines.spark.shipped.lastwords_spark_daemon import main

if __name__ == "__main__":
    main()
