"""What is added to a configuration, and what is left alone. No Spark is needed for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from lastwords.engines.spark import connect, settings
from lastwords.engines.spark.report import Death, parse, words
from lastwords.engines.spark.settings import Declined, Wishes, additions

CLUSTER = {"spark.master": "spark://here:7077"}


def added(given, wishes=None):
    return additions(given.get, wishes or Wishes())


def test_a_cluster_is_sent_the_daemon():
    found = added(CLUSTER)
    assert found[settings.DAEMON] == "lastwords_spark_daemon"
    assert found[settings.FILES] == str(settings.SHIPPED) and settings.SHIPPED.is_file()
    assert found[settings.QUOTE] == found[settings.QUOTE_SQL] == "true"
    assert settings.PYTHON_PATH not in found, "it would replace what the hosts' administrators have set"


def test_the_users_own_files_come_first():
    found = added({**CLUSTER, settings.FILES: "a.txt,b.txt"})
    assert found[settings.FILES] == f"a.txt,b.txt,{settings.SHIPPED}"


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*,2]"])
def test_a_local_master_finds_it_by_path(master):
    found = added({"spark.master": master, settings.PYTHON_PATH: "/mine"})
    assert found[settings.PYTHON_PATH] == f"/mine:{settings.SHIPPED.parent}"
    assert settings.FILES not in found


def test_a_small_cluster_on_one_machine_is_a_cluster():
    assert settings.FILES in added({"spark.master": "local-cluster[2,1,1024]"})


def test_what_the_user_has_set_stays():
    found = added({**CLUSTER, settings.QUOTE: "false"})
    assert settings.QUOTE not in found
    assert settings.DAEMON not in added({**CLUSTER, settings.DAEMON: "lastwords.spark_daemon"})


def test_another_daemon_is_left_alone():
    with pytest.raises(Declined, match=r"spark\.python\.daemon\.module is theirs\.daemon already"):
        added({**CLUSTER, settings.DAEMON: "theirs.daemon"})
    with pytest.raises(Declined, match="without a daemon"):
        added({**CLUSTER, settings.USE_DAEMON: "false"})


def test_hangs_are_asked_for():
    assert settings.HANG_AFTER not in added(CLUSTER)
    found = added(CLUSTER, Wishes(hang_after=2.5, kill_hung=True))
    assert (found[settings.HANG_AFTER], found[settings.KILL_HUNG]) == ("2.5", "1")


PANEL = """org.apache.spark.SparkException: Python worker exited unexpectedly (crashed):
✗ Python worker (pid 4711) died of SIGILL on row 3 of stage 12,
  partition 1
                                                               isa-mismatch 99 %
  This CPU cannot run an instruction that faiss-cpu was built with.

  vfmadd231ps ymm2, ymm0, ymm0  needs fma
  in faiss::search · _swigfaiss_avx2.so · faiss-cpu 1.9.0
"""
PLAIN = """SparkException: Python worker exited unexpectedly (crashed):
✗ Python worker (pid 12) died of SIGKILL in stage 0, partition 1, attempt 0
  host 127.0.0.3 · executor 0 · its memory was 56 MiB
  That host has no lastwords.
"""


def test_a_message_becomes_a_death():
    assert parse(PANEL, "b", "1") == Death(
        host="b",
        executor="1",
        how="died of SIGILL",
        item="row 3 of stage 12, partition 1",
        cause="isa-mismatch",
        sentence="This CPU cannot run an instruction that faiss-cpu was built with.",
        lacks="fma",
    )
    assert parse("org.apache.spark.shuffle.FetchFailedException: gone", "b", "1") is None


def test_a_message_of_a_bare_host_does_too():
    found = parse(PLAIN, "b", "1")
    assert found is not None and found.cause is None and found.sentence is None
    assert found.how == "died of SIGKILL in stage 0, partition 1, attempt 0"
    assert "pip install lastwords" in list(words([found]))[-1], "and how to learn more"


def test_deaths_on_one_host_are_told_so():
    found = parse(PANEL, "b", "1")
    assert found is not None
    assert list(words([found, found, found])) == [
        "3 Python workers died in this Spark job: all 3 on host b, which lacks fma",
        "  3 × died of SIGILL (isa-mismatch): This CPU cannot run an instruction that faiss-cpu was built with.",
        "      on row 3 of stage 12, partition 1",
    ]


def test_deaths_on_many_hosts_are_counted():
    deaths = [Death(host, "0", "was killed by SIGKILL", cause="out-of-memory") for host in "aab"]
    assert next(words(deaths)) == "3 Python workers died in this Spark job: 2 on host a, 1 on host b"
    assert list(words([])) == []


CONNECT = {"spark.master": "local[2]", "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}


def test_spark_connect_gets_a_daemon_that_its_workers_find(monkeypatch):
    """They are sent no files and given no variables: one that they do not find would end them all."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = added(CONNECT)
    assert found[settings.DAEMON] == settings.INSTALLED
    assert settings.PYTHON_PATH not in found and settings.FILES not in found


@pytest.mark.parametrize(
    "more",
    [{"spark.pyspark.python": "/usr/bin/python3"}, {"spark.master": "spark://here:7077"}],
    ids=["another interpreter", "a cluster"],
)
def test_spark_connect_elsewhere_is_left_alone(monkeypatch, more):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with pytest.raises(Declined, match=r"set spark\.python\.daemon\.module to lastwords\.spark_daemon"):
        added({**CONNECT, **more})
    chosen = {settings.DAEMON: settings.INSTALLED}
    assert settings.DAEMON not in added({**CONNECT, **more, **chosen}), "the user says that it is there"


def test_sessions_with_files_of_their_own_are_like_spark_connect():
    with pytest.raises(Declined):
        added({**CLUSTER, settings.ISOLATED: "true"})


def test_deaths_of_executors_are_collected_where_the_drivers_are():
    assert settings.COLLECT not in added(CLUSTER)
    wishes = Wishes(collect="s3://bucket/deaths")
    assert added(CLUSTER, wishes)[settings.COLLECT] == "s3://bucket/deaths"
    assert settings.COLLECT not in added({**CLUSTER, settings.COLLECT: "/mine"}, wishes)


def test_a_server_that_runs_already_is_told_from_one_of_ones_own(monkeypatch):
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert connect.is_elsewhere(SimpleNamespace(_options={"spark.remote": "sc://there:15002"}))
    assert not connect.is_elsewhere(SimpleNamespace(_options={"spark.remote": "local[2]"}))
    assert not connect.is_elsewhere(SimpleNamespace(_options={}))
    monkeypatch.setenv("SPARK_REMOTE", "sc://there:15002")
    assert connect.is_elsewhere(SimpleNamespace(_options={}))


def test_wishes_that_only_that_server_can_grant_are_named(capsys):
    connect.tell_what_is_not_ours(Wishes())
    assert capsys.readouterr().err == ""
    connect.tell_what_is_not_ours(Wishes(hang_after=60.0, kill_hung=True))
    said = capsys.readouterr().err
    assert f"{settings.HANG_AFTER} 60.0" in said and f"{settings.KILL_HUNG} 1" in said
