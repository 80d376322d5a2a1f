"""A real Ray on this machine: what the driver's own exception says of each way to die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.victims import deaths

pytest.importorskip("ray")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(700)]

HERE = Path(__file__).parent
LASTWORDS = [sys.executable, "-m", "lastwords", "run", "--quiet"]
HOST = os.uname().nodename


def run(home: Path, *words: str, before: list[str] | None = None, variables: dict[str, str] | None = None):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LASTWORDS", "RAY"))}
    paths = f"{Path(deaths.__file__).parent}"
    return subprocess.run(
        [*(LASTWORDS if before is None else before), sys.executable, str(HERE / "job.py"), *words],
        env={
            **own,
            "LASTWORDS_HOME": str(home),
            "PYTHONPATH": paths,
            "RAY_AUTH_MODE": "disabled",
            "RAY_gcs_server_port_wait_time_s": "300",  # Ray's own limits are those of an idle machine
            **(variables or {}),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


# The hang comes first: it holds one of two workers, and all that follows runs beside it.
WAYS = ["hang", *deaths.ENDINGS, "exception", "retries", "actor SIGSEGV", "rows", "bad row", "batches"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One Ray for all of them."""
    hows = [how for how in WAYS if not deaths.missing(how.removeprefix("actor "))]
    words = [sys.executable, "-m", "lastwords", "run", "--hang-after", "3", "--"]
    done = run(tmp_path_factory.mktemp("home"), ",".join(hows), before=words)
    deaths.tidy()
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["name"]: one for one in lines}, done.stderr


@pytest.mark.parametrize("how", deaths.ENDINGS)
def test_the_exception_says_why_a_task_died(job, how):
    if lacks := deaths.missing(how):
        pytest.skip(lacks)
    headline, *proofs = deaths.ENDINGS[how]
    said = job[0][how]
    assert said["types"][0] == "WorkerCrashedError"
    assert said["message"].startswith("The worker died unexpectedly")
    (note,) = said["notes"]
    assert note.startswith("✗ Ray worker (pid ") and f"{headline} on task work " in note
    place = " ".join(note.split())
    assert all(proof in place for proof in (*proofs, "What to do")), note
    assert "os._exit()" in note or not how.startswith("exit")
    assert " · node " in place and f"({HOST})" in place


def test_the_fault_is_the_true_one_behind_rays_own_handler(job):
    """Abseil's handler raises the signal again: had it come before ours, address and function would be lost."""
    (note,) = job[0]["SIGSEGV"]["notes"]
    assert "it read address 0x8: null plus 8" in note
    assert "SIGSEGV received at time=" in job[1]  # Ray's own words are still said


def test_an_exception_stays_what_it_is(job):
    said = job[0]["exception"]
    assert "ValueError" in said["types"] and "RayTaskError" in said["types"]
    assert "a value that nobody expected" in said["message"]
    assert "lastwords" not in said["message"]


def test_an_exception_gains_its_task_and_host(job):
    (note,) = job[0]["exception"]["notes"]
    assert note.startswith("lastwords: task work ")
    assert " · worker " in note and " · node " in note and note.endswith(f"host {HOST}")


def test_an_exception_of_a_row_says_which(job):
    assert "a value that nobody expected" in job[0]["bad row"]["message"]
    (note,) = job[0]["bad row"]["notes"]
    assert note.startswith("lastwords: row 1 of block 1, task ")


def test_earlier_attempts_are_counted(job):
    (note,) = job[0]["retries"]["notes"]
    assert "attempt 2" in note
    assert "before that, of the same task: pid" in note and "ended with exit code 3" in note


def test_an_actor_and_who_calls_it_when_it_is_dead(job):
    for name in ("actor SIGSEGV", "called when dead"):
        said = job[0][name]
        assert said["types"][0] == "ActorDiedError"
        (note,) = said["notes"]
        assert "died of SIGSEGV on task Actor.work" in note and "of actor" in note and "null-pointer" in note


def test_a_hang_is_explained_on_the_terminal(job):
    assert "GetTimeoutError" in job[0]["hang"]["types"]
    assert "hangs on item task work" in job[1]
    assert '"hang": lambda: time.sleep(1000)' in job[1]


def test_a_timeout_says_where_the_task_hangs(job):
    (note,) = job[0]["hang"]["notes"]
    assert note.startswith("✗ Ray worker (pid ") and "hangs on task work " in note
    assert '"hang": lambda: time.sleep(1000)' in note


def test_a_row_of_ray_data_is_named(job):
    """Twenty rows in two blocks, and number 11 kills: the second row of the second block."""
    (note,) = job[0]["rows"]["notes"]
    assert "died of SIGSEGV on row 1 of block 1, task " in " ".join(note.split())
    assert "null-pointer" in note


def test_a_batch_of_ray_data_is_named_with_its_rows(job):
    (note,) = job[0]["batches"]["notes"]
    assert "ended with exit code 3 on batch 0 (rows 0 to 4) of block 1, task " in " ".join(note.split())


def test_nothing_is_said_of_a_job_that_is_well(tmp_path):
    """Ray ends its idle workers and its servants by SIGKILL: no deaths."""
    done = run(tmp_path, "nothing")
    assert "death" not in done.stderr.replace("KeyError", ""), done.stderr


def test_the_setup_hook_alone(tmp_path):
    """A cluster whose nodes know nothing of us: the account comes through Ray's own store."""
    done = run(tmp_path, "--hook", "exit 3", before=[])
    assert "{" in done.stdout, done.stderr
    (said,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (note,) = said["notes"]
    assert "ended with exit code 3 on task work" in note and "worker-exit" in note, done.stderr


def test_a_worker_without_lastwords_gets_a_hint(tmp_path):
    """The driver is recorded, the workers are not: the cluster was there before, and runs without us."""
    done = run(tmp_path, "--late", "exit 3", before=[])
    assert "{" in done.stdout, done.stderr
    (said,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said["notes"]) == 1, (said, done.stderr)
    assert "nobody recorded this worker" in said["notes"][0] and "pip install lastwords" in said["notes"][0]


def test_of_a_node_that_is_gone_with_all_that_knew_it_is_told_that(monkeypatch):
    """Its watcher, too: no account of it will ever come."""
    import ray
    from ray.exceptions import NodeDiedError

    from lastwords.engines import ray as adapter

    nodes = [
        {"NodeID": "ab" * 28, "Alive": False, "NodeManagerAddress": "192.0.2.7"},
        {"NodeID": "cd" * 28, "Alive": True, "NodeManagerAddress": "192.0.2.8"},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(adapter, "_is_recorded", lambda: True)
    monkeypatch.setattr(adapter, "_about", lambda _: [])
    monkeypatch.setattr(adapter, "NODE_PATIENCE", 0.1)
    error: Any = NodeDiedError("Task failed because the node it was running on is dead or unavailable.")
    adapter._explain(error, None)
    (note,) = error.__notes__
    assert "not this worker died, but its node" in note and "node abababababab at 192.0.2.7" in note
    assert "cdcdcdcdcdcd" not in note


def test_a_store_that_does_not_answer_is_no_reason_to_say_nothing(monkeypatch):
    """Seen once, on a busy machine: the hint was lost, because nobody could say whether the nodes are recorded."""
    from ray.exceptions import WorkerCrashedError

    from lastwords.engines import ray as adapter

    def refuse(*_):
        raise RuntimeError("deadline exceeded")

    client = SimpleNamespace(internal_kv_keys=refuse, internal_kv_get=refuse)
    worker = SimpleNamespace(global_worker=SimpleNamespace(gcs_client=client))
    monkeypatch.setitem(sys.modules, "ray._private.worker", worker)
    monkeypatch.delenv("LASTWORDS", raising=False)
    error: Any = WorkerCrashedError()
    adapter._explain(error, None)
    assert "nobody recorded this worker" in error.__notes__[0]
    assert adapter.ENGINE.is_on
