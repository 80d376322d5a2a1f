"""A search with faiss in two partitions, one for each host. Says what the driver's exception said, or the results."""

from __future__ import annotations

import json
import os
import sys

from session import builder  # type: ignore[import-not-found]  # beside this file

import lastwords.spark


def search(row):
    import faiss
    import numpy as np

    points: np.ndarray = np.arange(64_000, dtype="float32").reshape(1000, 64)
    index = faiss.IndexFlatL2(64)
    index.add(points)
    _, nearest = index.search(points[row : row + 1], 1)
    return int(nearest[0, 0]), os.environ.get("LW_TEST_HOST")


def main():
    more = dict(word.split("=", 1) for word in sys.argv[1:])
    settings = {
        "spark.executorEnv.LW_TEST_EMULATED": "Haswell,-fma",
        "spark.executorEnv.FAISS_OPT_LEVEL": "AVX2",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        **more,
    }
    spark = lastwords.spark.configure(builder("search", **settings)).getOrCreate()
    try:
        rows = spark.sparkContext.parallelize(list(range(8)), 2).map(search).collect()
        said = {"rows": rows, "text": ""}
    except Exception as error:  # noqa: BLE001
        said = {"rows": [], "text": str(error)}
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
