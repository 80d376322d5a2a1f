"""Two rows kill, one hangs: what is left of two hundred, and what the side table says."""

from __future__ import annotations

import json
import os
import sys

from session import builder  # type: ignore[import-not-found]  # beside this file

import lastwords.spark


def doubled(rows):
    import ctypes
    import time

    for row in rows["id"]:
        if row == 37:
            ctypes.string_at(0)
        if row == 38:
            os._exit(3)
        if row == 180:
            time.sleep(600)
    return rows.assign(twice=rows["id"] * 2)[["id", "twice"]]


def always(rows):
    os._exit(4)


def main():
    session = builder("quarantine", **{"spark.sql.execution.arrow.maxRecordsPerBatch": "10"})
    spark = lastwords.spark.configure(session).getOrCreate()
    frame = spark.range(0, 200, 1, 2)
    good, bad = lastwords.spark.quarantine(frame, doubled, schema="id long, twice long", timeout=2.0)
    rows, lost = good.orderBy("id").collect(), bad.orderBy("id").collect()
    deaths = len(list(lastwords.spark.deaths(spark.sparkContext)))
    try:
        lastwords.spark.quarantine(frame, always, schema="id long", most=3)[0].collect()
        refused = ""
    except Exception as error:  # noqa: BLE001
        refused = str(error)
    said = {
        "good": [(row.id, row.twice) for row in rows],
        "bad": {row.id: row.lastwords.asDict() for row in lost},
        "deaths": deaths,
        "refused": refused,
    }
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
