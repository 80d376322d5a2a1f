"""A death that a retry hides from a client of Spark Connect: told at the client's end, by its own lastwords."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lastwords.engines.spark import connect_report
from tests.engines.spark.cluster import free_ports
from tests.engines.spark.connect_server import EXPLAINING, LASTWORDS, connect_server

pytest.importorskip("grpc")
pytest.importorskip("pyspark", minversion="4")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(1000)]

JOB = Path(__file__).parent / "jobs" / "remote_hidden.py"
LOCAL = "local[2,4]"
"""A task that fails is tried again, up to four times."""
RETRYING = {**EXPLAINING, "spark.task.maxFailures": "4"}
CLIENT = {"MASTER": "", "PYSPARK_PYTHON": sys.executable}
TOLD = "lastwords: 1 Python worker died in this Spark job: on host "


def served(cluster, name: str, **settings: str):
    known = cluster.environment(PYSPARK_PYTHON=sys.executable)
    return connect_server(cluster.place / f"{name}.log", known, LOCAL, **RETRYING, **settings)


def shown() -> dict[str, str]:
    """Settings of a server with a web interface."""
    return {"spark.ui.enabled": "true", "spark.ui.port": str(free_ports(1)[0])}


@pytest.fixture(scope="module")
def server(cluster):
    with served(cluster, "hidden", **shown()) as (url, _):
        yield url


@pytest.fixture
def run(cluster):
    def run(*words: str | Path, by: list[str] = LASTWORDS) -> subprocess.CompletedProcess[str]:
        done = cluster.call([*by, sys.executable, str(JOB), *map(str, words)], **CLIENT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "10", "the retry has done it"
        return done

    return run


def is_told_once(told: str) -> bool:
    return told.count(TOLD) == 1 and all(
        words in told
        for words in (
            "lastwords:   1 × ended with exit code 3 (worker-exit): ",
            "lastwords:       on row 2 of stage ",
        )
    )


@pytest.mark.parametrize("end", ["stops", "just ends"])
def test_it_is_told_once_at_the_end(run, server, tmp_path, end):
    told = run(server, tmp_path / "mark", end).stderr
    assert is_told_once(told), told


def test_a_server_of_the_programs_own_tells_it_once(run, tmp_path):
    """That one has a SparkContext, which tells of its deaths as every other."""
    told = run(LOCAL, tmp_path / "mark", "stops").stderr
    assert is_told_once(told), told


def test_a_program_can_ask(run, server, tmp_path):
    said = run(server, tmp_path / "mark", "asks", by=[]).stdout.splitlines()[1]
    assert re.fullmatch(r"\[\('ended with exit code 3', 'row 2 of stage \d+, partition 1'\)\]", said)


def test_sessions_of_others_are_not_ours(run, server, tmp_path):
    run(server, tmp_path / "mark", "stops", by=[])
    assert (tmp_path / "mark").exists(), "somebody else's worker has died"
    assert "died in this Spark job" not in run(server, "-", "stops").stderr


def test_without_a_web_interface_nothing_is_said(cluster, run, tmp_path):
    with served(cluster, "plain-hidden") as (url, _):
        told = run(url, tmp_path / "mark", "stops").stderr
    assert (tmp_path / "mark").exists()
    assert "Spark" not in told, told


def test_a_server_that_is_gone_holds_nobody_up(cluster):
    with served(cluster, "gone", **shown()) as (url, _):
        client = subprocess.Popen(
            [sys.executable, str(JOB), url, "-", "is left alone"],
            env=cluster.environment(PYSPARK_PYTHON=sys.executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "10\n"
    seconds, told = client.communicate("gone\n", timeout=300)
    assert client.returncode == 0, told
    assert float(seconds) < 3 * connect_report.SECONDS
    assert "Spark" not in told, told
