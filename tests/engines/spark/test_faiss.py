"""The story that lastwords began with: a cluster, one host with an older CPU, and a library built for newer ones."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.timeout(1000),
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user for a CPU without fma"),
    pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="needs faiss-cpu 1.9.0"),
]

JOB = Path(__file__).parent / "jobs" / "search.py"


def flat(text: str) -> str:
    return " ".join(text.split())


def run(cluster, *settings):
    found = cluster.run(JOB, *settings)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1]), found.stderr


def test_the_exception_tells_the_whole_story(cluster):
    said, stderr = run(cluster)
    text = flat(said["text"])
    assert "died of SIGILL on row 0 of stage 0, partition" in text, said
    assert re.search(r"isa-mismatch 9\d %", text)
    assert re.search(r"vfm\w+ .* needs fma", text)
    assert "_swigfaiss_avx2.so · faiss-cpu 1.9.0" in text
    assert "fma no" in text
    assert "host 127.0.0.3 · executor" in text
    assert "search.py" in text and "index.search(points[row : row + 1], 1)" in text
    assert "spark.executorEnv.FAISS_OPT_LEVEL=generic" in text
    assert "lastwords scan --emit spark >> conf/spark-defaults.conf" in text
    assert "1 Python worker died in this Spark job: on host 127.0.0.3, which lacks fma" in stderr


def test_with_the_emitted_configuration_the_job_runs_where_it_can(cluster):
    properties = dict(line.split(None, 1) for line in cluster.placement.defaults.splitlines())
    said, stderr = run(cluster, *(f"{name}={value}" for name, value in properties.items()))
    assert said["rows"] == [[row, "one"] for row in range(8)], (said, stderr)
    assert "died" not in stderr
