"""Spark Connect: its client's exception explains a death, too, and functions that are well run as without us."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.spark.cluster import java_home

pytest.importorskip("grpc")
pytest.importorskip("pyspark", minversion="4")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.timeout(700),
    pytest.mark.skipif(java_home() is None, reason="needs Java 17"),
]

JOB = Path(__file__).parent / "jobs" / "connect.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("connect")
    known = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "JAVA_HOME": java_home() or "",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place),
        "SPARK_TESTING": "1",  # Spark's own way to any free port
        "PYSPARK_PYTHON": sys.executable,
        "LASTWORDS_HOME": str(place / "home"),
    }
    words = [str(Path(sys.executable).with_name("lastwords")), "run", "--", sys.executable, str(JOB)]
    done = subprocess.run(
        words, env=known, capture_output=True, text=True, timeout=600, check=False, cwd=place
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def flat(text: str) -> str:
    return " ".join(text.split())


def test_what_is_well_runs(run):
    """A daemon that its workers do not find would end every one of them."""
    assert run[0]["well"] == 10


def test_the_clients_exception_explains_the_death(run):
    said = run[0]["udf"]
    assert said["type"] == "pyspark.errors.exceptions.connect.SparkException"
    assert re.search(r"ended with exit code 3 on batch \d .*of stage \d+, partition 1", flat(said["text"])), (
        said
    )
    assert "worker-exit" in said["text"] and "What to do" in said["text"]
    assert "os._exit() was called at connect.py:19, in bad" in said["text"], said
    assert "null-pointer" in run[0]["map"]["text"] and "died of SIGSEGV on batch 0" in run[0]["map"]["text"]


def test_the_end_of_spark_is_no_death(run):
    """The daemon is told to end, and does, with exit code 1; the JVM takes a moment longer than its driver."""
    assert "lastwords: 2 Python workers died in this Spark job" in run[1]
    assert "✗ Spark daemon" not in run[1] and "without a task" not in run[1], run[1]
    assert "no longer watched" not in run[1]
