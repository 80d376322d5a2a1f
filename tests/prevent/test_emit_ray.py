"""What is emitted for Ray, on a real one: of two nodes, tasks run on the labelled one alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastwords.prevent import emit
from lastwords.prevent.fleet import Host
from lastwords.prevent.scan_model import Library

pytest.importorskip("ray")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(400)]

NO_CLUSTER = 77
JOB = Path(__file__).with_name("ray_placement.py")
LIBRARY = Library(path="/env/x.so", package="hnswlib", version="0.8", needs=("avx", "avx2", "fma"))
CAPABLE = Host(host="node-new", features=("avx", "avx2", "fma"))


def test_tasks_run_on_the_labelled_node_alone():
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LASTWORDS", "RAY"))
    }
    done = subprocess.run(
        [sys.executable, str(JOB)],
        input=emit.emit("ray", [LIBRARY], [CAPABLE]),
        env={**environment, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    if done.returncode == NO_CLUSTER:
        pytest.skip("Ray could not start two nodes here in the time that it allows itself")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["nodes"] == 2
    assert len(found["capable"]) == 1
    assert found["by label"] == found["by resource"] == found["capable"]
