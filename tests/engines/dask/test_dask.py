"""A real LocalCluster: what the client's own exception says of each way to die."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.victims import deaths

pytest.importorskip("distributed")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(700)]

HERE = Path(__file__).parent
RUN = [sys.executable, "-m", "lastwords", "run", "--hang-after", "3", "--"]
HOST = os.uname().nodename


def environment(home: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LASTWORDS", "DASK"))}
    return {
        **own,
        "LASTWORDS_HOME": str(home),
        "LASTWORDS_DASK_RESOURCES": "sse2,no-such-feature",
        "PYTHONPATH": str(Path(deaths.__file__).parent),
    }


def run(home: Path, *words: str, before: list[str] | None = None, **variables: str):
    done = subprocess.run(
        [*(RUN if before is None else before), sys.executable, str(HERE / "job.py"), *words],
        env={**environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["name"]: one for one in lines}, done.stderr


WAYS = [*deaths.ENDINGS, "exception", "hang"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One cluster for all of them."""
    found = run(tmp_path_factory.mktemp("home"), ",".join(how for how in WAYS if not deaths.missing(how)))
    deaths.tidy()
    return found


@pytest.mark.parametrize("how", deaths.ENDINGS)
def test_killed_worker_says_why(job, how):
    if lacks := deaths.missing(how):
        pytest.skip(lacks)
    headline, *proofs = deaths.ENDINGS[how]
    said = job[0][how]
    assert said["type"] == "KilledWorker" and said["message"].startswith("Attempted to run task")
    (note,) = said["notes"]
    assert (
        note.startswith("✗ Dask worker (pid ") and f"{headline} on task work-{how.replace(' ', '-')}" in note
    )
    assert all(proof in " ".join(note.split()) for proof in (*proofs, "What to do")), note
    assert "worker tcp://" in note and f"host {HOST}" in note


def test_events_are_logged(job):
    assert len(job[0]["events"]["causes"]) == len([how for how in deaths.ENDINGS if not deaths.missing(how)])
    assert "worker-exit" in job[0]["events"]["causes"]


def test_an_exception_stays_what_it_is(job):
    said = job[0]["exception"]
    assert said["type"] == "ValueError" and said["message"] == "a value that nobody expected"
    (note,) = said["notes"]
    assert note.startswith("lastwords: task work-exception · worker 0 at tcp://") and f"host {HOST}" in note


def test_a_hang_is_explained_on_the_terminal(job):
    assert job[0]["hang"]["type"] == "TimeoutError"
    assert "hangs on item task work-hang" in job[1]
    assert "in <lambda>  (another thread)" in job[1]  # the main thread only polls


def test_a_timeout_says_where_the_task_hangs(job):
    (note,) = job[0]["hang"]["notes"]
    assert note.startswith("✗ Dask worker (pid ") and "hangs on task work-hang" in note
    assert "in <lambda>  (another thread)" in note  # the main thread only polls


def test_without_lastwords_run_a_nanny_sees_the_hang(tmp_path):
    """And logs it, beside the deaths; the timeout says it, too."""
    said, _ = run(tmp_path, "--enable", "hang", before=[], LASTWORDS_DASK_HANG_AFTER="2")
    (note,) = said["hang"]["notes"]
    assert "hangs on task work-hang" in note and "in <lambda>  (another thread)" in note
    assert "worker tcp://" in note and f"host {HOST}" in note
    assert said["events"]["hangs"] == ["task work-hang"]


def test_enable_alone_and_every_worker_that_the_task_killed(tmp_path):
    """No `lastwords run`: one line in the program."""
    said, stderr = run(tmp_path, "--enable", "exit 3", "1", before=[])
    (note,) = said["exit 3"]["notes"]
    assert "ended with exit code 3 on task work-exit-3" in note and "worker-exit" in note
    assert "before that, of the same task: pid" in note
    assert stderr.count("✗ Dask worker") == 2


def test_dasks_own_memory_limit_is_named(tmp_path):
    said, _ = run(tmp_path, "--limit", "memory")
    (note,) = said["memory"]["notes"]
    assert "its nanny ended it: its memory was over 95% of memory_limit, 0.39 GiB" in note


def test_a_worker_without_lastwords_gets_a_hint(tmp_path):
    """The client is recorded, the cluster is not. Then its nanny is, by a preload alone."""
    file = tmp_path / "scheduler.json"
    # The scheduler's own setting: the first death of a task is its last. A nanny whose worker dies before it has seen
    # it come up starts no other one (Dask's own race), and a task that may kill four would wait for ever.
    variables = {**environment(tmp_path), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(file),
             "--no-dashboard"], env=variables, stderr=subprocess.DEVNULL, start_new_session=True,
        )
    ]  # fmt: skip
    try:
        address = address_in(file)
        for preload, expected in (([], "nobody recorded this worker"), (PRELOAD, "worker-exit")):
            name = "preloaded" if preload else "plain"
            started.append(worker(address, tmp_path, name, preload))
            notes, resources = killed_worker(address, tmp_path, name)
            assert len(notes) == 1 and expected in notes[0], notes
            assert resources == [{"sse2": 1.0} if preload and platform.machine() == "x86_64" else {}]
            stop(started.pop())
    finally:
        for process in started:
            stop(process)


def test_a_nanny_that_ended_with_its_worker_is_told_from_one_that_knows_nothing(monkeypatch):
    from distributed.scheduler import KilledWorker

    from lastwords.engines import dask

    monkeypatch.setattr(dask, "PATIENCE", 0.1)

    async def asked(events):
        async def of_topic(topic):
            return [(0.0, event) for event in events if topic == dask.TOPIC]

        client = SimpleNamespace(scheduler=SimpleNamespace(events=of_topic))
        error: Any = KilledWorker("work-1", SimpleNamespace(pid=4711, address="tcp://b:1"), 0)
        await dask._add_account(client, "work-1", error)
        return error.__notes__

    (plain,) = asyncio.run(asked([]))
    (recorded,) = asyncio.run(asked([{"kind": "recorded", "pid": 4711}]))
    assert "nobody recorded this worker" in plain
    assert "was recorded (pid 4711)" in recorded and "lastwords list" in recorded


def address_in(file: Path) -> str:
    """Of the scheduler, when it has written all of it."""
    while not (file.exists() and is_whole(file.read_text())):
        time.sleep(0.05)
    return str(json.loads(file.read_text())["address"])


def is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


PRELOAD = ["--preload-nanny", "lastwords.engines.dask"]
CLIENT = """
import json, sys, time, lastwords; lastwords.enable()
from distributed import Client
from deaths import die
with Client(sys.argv[1]) as client:
    workers = []
    while [one["name"] for one in workers] != [sys.argv[2]]:  # and the one before it has gone
        time.sleep(0.05)
        workers = list(client.scheduler_info()["workers"].values())
    # A nanny whose worker dies before it has seen it come up ends, too: Dask's own race, with or without us.
    while list(client.run(lambda dask_worker: dask_worker.status.name, nanny=True).values()) != ["running"]:
        time.sleep(0.05)
    resources = [one["resources"] for one in workers]
    try:
        client.submit(die, "exit 3", pure=False).result()
    except Exception as error:
        print(json.dumps([error.__notes__, resources]))
"""


def worker(address: str, home: Path, name: str, preload: list[str]):
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        address,
        "--name",
        name,
        "--nthreads",
        "1",
        "--no-dashboard",
        *preload,
    ]
    return subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL, start_new_session=True)


def killed_worker(address: str, home: Path, name: str) -> tuple[list[str], list[dict[str, float]]]:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, address, name], env=environment(home), capture_output=True, text=True, timeout=300,
        check=True,
    )  # fmt: skip
    notes, resources = json.loads(done.stdout.splitlines()[-1])
    return notes, resources


def stop(process: subprocess.Popen[bytes]) -> None:
    """With its whole session: a nanny restarts its worker until it is told to end."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
