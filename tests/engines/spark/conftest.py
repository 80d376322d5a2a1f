"""One cluster for all tests of Spark, started when the first of them needs it and gone after the last."""

from __future__ import annotations

import os

import pytest

from tests.engines.processes import left_over
from tests.engines.spark.cluster import Cluster, missing
from tests.engines.spark.memory_group import small_memory_group


@pytest.fixture(scope="package")
def memory_group():
    with small_memory_group(f"lastwords-spark-{os.getpid()}") as path:
        yield path


@pytest.fixture(scope="package")
def cluster(tmp_path_factory, memory_group):
    lacking = missing()
    if lacking is not None:
        pytest.skip(f"Spark needs {lacking}")
    made = Cluster(tmp_path_factory.mktemp("spark"), group=memory_group)
    try:
        made.start()
        yield made
    finally:
        made.stop()
    assert not left_over(str(made.place))
