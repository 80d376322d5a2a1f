"""No change of code: `lastwords run` on a cluster and on a local master, deaths that retries hide, bare hosts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from lastwords.evidence.gathered import Gathered
from lastwords.evidence.places import open_place

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(1000)]

JOB = Path(__file__).parent / "jobs" / "unchanged.py"
LASTWORDS = str(Path(sys.executable).with_name("lastwords"))


def flat(text: str) -> str:
    return " ".join(text.split())


def submit(cluster) -> str:
    return str(Path(cluster.environment()["SPARK_HOME"], "bin", "spark-submit"))


def test_deaths_hidden_by_retries_are_told_with_their_host(cluster, tmp_path):
    """And collected: the executors send theirs to the place that the driver was told."""
    run = cluster.call(
        [LASTWORDS, "run", "--collect", str(tmp_path), "--", submit(cluster), str(JOB), "2"],
        LW_TEST_HOST="driver",
    )
    assert run.returncode == 0, run.stderr
    assert "rows [1, 2]" in run.stdout
    # spark-submit puts both streams of a Python driver into its own output.
    told = [line for line in run.stdout.splitlines() if line.startswith("lastwords: ")]
    assert "died in this Spark job: " in told[0] and "on host 127.0.0.3" in told[0], run.stdout
    assert "127.0.0.2" not in told[0]
    assert "was killed by SIGKILL (external-kill)" in told[1]
    assert "row 0 of stage 0, partition" in told[2]
    while not (collected := Gathered(open_place(str(tmp_path))).all()):
        time.sleep(0.1)  # a sender goes on when its executor has ended
    assert all(one.process and "Spark stage 0, partition" in (one.process.role or "") for one in collected)


def test_a_local_master_needs_nothing_either(cluster):
    """The workers are then below `lastwords run`, which shows their deaths as well; both must find the box."""
    run = cluster.call(
        [LASTWORDS, "run", "--", sys.executable, str(JOB), "9"],
        LW_TEST_HOST="other",
        MASTER="local[1]",
        PYSPARK_PYTHON=sys.executable,
    )
    assert run.returncode == 1
    exception = run.stderr.partition("Py4JJavaError")[2]
    assert "✗ Python worker (pid " in exception, run.stderr
    assert "was killed by SIGKILL on row 0 of stage 0, partition 0" in flat(exception)
    assert "SIGKILL was sent by the process itself" in flat(exception)
    assert "✗ Spark stage 0, partition 0, attempt 0 (pid" in flat(run.stderr), run.stderr


def test_a_host_without_lastwords_says_how_to_know_more(cluster):
    bare = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    run = cluster.call(
        [LASTWORDS, "run", "--", sys.executable, str(JOB), "9"],
        PYSPARK_PYTHON=bare,
        LW_TEST_FAILURES="1",
    )
    assert run.returncode == 1
    text = flat(run.stderr.partition("Py4JJavaError")[2])
    assert "died of SIGKILL in stage 0, partition" in text, run.stderr
    assert "host 127.0.0.3 · executor" in text
    assert "That host has no lastwords." in text
    assert "pip install lastwords" in text
    assert "on host 127.0.0.3" in run.stderr.partition("lastwords: ")[2]


def test_spark_defaults_need_two_lines(cluster, tmp_path):
    """Where lastwords is installed on the hosts; the driver has no lastwords in it at all.

    A UDF with Arrow tells its batch in the first attempt, and the row in the second.
    """
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text(
        "spark.python.daemon.module lastwords.spark_daemon\nspark.python.worker.faulthandler.enabled true\n"
    )
    job = tmp_path / "job.py"
    job.write_text(
        "import os, sys, json\n"
        f"sys.path.insert(0, {str(JOB.parent)!r})\n"
        "from session import builder\n"
        "from pyspark.sql.functions import udf\n"
        "spark = builder('two lines', failures=2).getOrCreate()\n"
        "said = {}\n"
        "for name, work in {\n"
        "    'rdd': lambda: spark.sparkContext.parallelize([1], 1).map(lambda row: os._exit(3)).collect(),\n"
        "    'udf': lambda: spark.range(1).select(udf(lambda row: os._exit(3))('id')).collect(),\n"
        "}.items():\n"
        "    try: work()\n"
        "    except Exception as error: said[name] = str(error)\n"
        "print(json.dumps(said))\n"
        "spark.stop()\n"
    )
    run = cluster.call([submit(cluster), "--properties-file", str(defaults), str(job)])
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout.splitlines()[-1])
    for text in map(flat, said.values()):
        assert "ended with exit code 3 on row 0 of stage" in text and "worker-exit" in text, text
    assert set(said) == {"rdd", "udf"}
