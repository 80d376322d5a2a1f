"""A Spark Connect server on the cluster, and clients of it in processes of their own: their exceptions explain."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.engines.spark.connect_server import EXPLAINING, LASTWORDS, connect_server

pytest.importorskip("grpc")
pytest.importorskip("pyspark", minversion="4")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(1000)]

JOB = Path(__file__).parent / "jobs" / "remote.py"
HANGS = {
    "spark.executorEnv.LASTWORDS_SPARK_HANG_AFTER": "4",
    "spark.executorEnv.LASTWORDS_SPARK_KILL_HUNG": "1",
}
# What must be in the exception's text: how it ended, the cause, the unit.
DEATHS = {
    "batches:segv": [
        "died of SIGSEGV",
        "null-pointer",
        r"on batch 0 \(rows 0 to 4\) of stage \d+, partition 1",
    ],
    "series:kill": ["was killed by SIGKILL", "external-kill", r"on batch 0 \(rows 0 to 4\) of stage \d+"],
    "arrow:exit-3": ["ended with exit code 3", "worker-exit", r"on batch 0 .*of stage \d+, partition 1"],
    "row:exit-3": ["ended with exit code 3", "worker-exit", r"on row 2 of stage \d+, partition 1"],
    "groups:segv": ["died of SIGSEGV", "null-pointer", r"on group \d+ of stage \d+, partition \d"],
    "table:exit-3": ["ended with exit code 3", "worker-exit", r"of stage \d+, partition 1"],
    "row:hang": ["hangs", r"time\.sleep\(600\)", r"on row 2 of stage \d+, partition 1"],
}
RAISED = "row:raise"
CLIENT = {"MASTER": ""}
"""It has none of its own."""
CRASHED = "Python worker exited unexpectedly (crashed)"


def flat(text: str) -> str:
    return " ".join(text.split())


def said_by(run) -> dict:
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def server(cluster):
    """It has the two lines in its configuration, and lastwords is on the hosts; nobody starts it by `lastwords run`."""
    log = cluster.place / "connect-server.log"
    with connect_server(log, cluster.environment(), cluster.url, **EXPLAINING, **HANGS) as (url, _):
        yield url


@pytest.fixture(scope="module")
def said(cluster, server):
    """By a client that has never heard of lastwords."""
    return said_by(cluster.run(JOB, server, *DEATHS, RAISED, **CLIENT))


def test_the_client_needs_no_lastwords(said):
    assert said["has lastwords"] is False
    assert said["well"] == 10


@pytest.mark.parametrize("case", DEATHS)
def test_the_clients_exception_explains_the_death(said, case):
    text = flat(said[case]["text"])
    assert said[case]["type"] == "pyspark.errors.exceptions.connect.SparkException"
    assert CRASHED in text
    for words in DEATHS[case]:
        assert re.search(words, text), said[case]["text"]
    assert re.search(r"attempt 0, task \d+ · host 127\.0\.0\.[23] · executor \d", text), said[case]["text"]
    assert "your code remote.py" in text and "What to do" in text, said[case]["text"]


def test_an_exception_keeps_its_type_and_gains_the_row(said):
    assert said[RAISED]["type"] == "pyspark.errors.exceptions.connect.PythonException"
    assert "ValueError: this row is bad" in said[RAISED]["text"]
    assert re.search(
        r"lastwords: row 2 of stage \d+, partition 1 · attempt 0, task \d+ · host 127\.0\.0\.[23]",
        said[RAISED]["text"],
    ), said[RAISED]["text"]


def test_a_client_that_is_recorded_is_told_the_same_once(cluster, server):
    run = cluster.call([*LASTWORDS, sys.executable, str(JOB), server, "row:exit-3"], **CLIENT)
    said = said_by(run)["row:exit-3"]
    assert "worker-exit" in said["text"] and said["notes"] == []
    assert "✗" not in run.stderr, "the worker is no process of this run"


def test_a_server_without_lastwords_gets_a_hint(cluster):
    log, known = cluster.place / "plain-server.log", cluster.environment(PYSPARK_PYTHON=sys.executable)
    with connect_server(log, known, "local[1]") as (url, _):
        said = said_by(
            cluster.call([*LASTWORDS, sys.executable, str(JOB), url, "row:exit-3", RAISED], **CLIENT)
        )
    assert CRASHED in said["row:exit-3"]["text"]
    (note,) = said["row:exit-3"]["notes"]
    assert "nobody recorded this worker" in note and "pip install lastwords" in note
    assert all(line in flat(note) for line in (f"{name} {value}" for name, value in EXPLAINING.items())), note
    assert said[RAISED]["notes"] == []
