"""Spark 3.5, in an environment of its own, which `make test` sets up: pyspark 3.5 and 4 cannot live in one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.engines.spark.cluster import java_home

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-spark35" / "bin" / "python"
JOB = Path(__file__).parent / "jobs" / "older.py"

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.timeout(700),
    pytest.mark.skipif(not PYTHON.exists(), reason="needs pyspark 3.5: make .venv/stamps/spark35"),
    pytest.mark.skipif(java_home() is None, reason="needs Java 17"),
]


def test_an_older_spark_tells_row_and_batch(tmp_path):
    known = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "JAVA_HOME": java_home() or "",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(PYTHON),
        "PYTHONPATH": str(ROOT / "src"),
        "LASTWORDS_HOME": str(tmp_path),
    }
    run = subprocess.run([PYTHON, JOB], env=known, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    said = {name: " ".join(text.split()) for name, text in json.loads(run.stdout.splitlines()[-1]).items()}
    assert said["version"].startswith("3.5.")
    assert "ended with exit code 3 on row 2 of stage 0, partition 1" in said["rdd"], said["rdd"]
    assert "ended with exit code 3 on row 2 of stage 1, partition 1" in said["udf"], said["udf"]
    assert "ended with exit code 3 on batch 0 of stage 2, partition 1" in said["map"], said["map"]
    assert "not among the tested versions" not in run.stderr
    assert "lastwords: 6 Python workers died in this Spark job" in run.stderr
