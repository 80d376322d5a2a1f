"""A real LocalCluster: what the client's own exception says of each way to die."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.victims import deaths

pytest.importorskip("distributed")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(200)]

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


def run(home: Path, *words: str, before: list[str] | None = None):
    done = subprocess.run(
        [*(RUN if before is None else before), sys.executable, str(HERE / "job.py"), *words],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["name"]: one for one in lines}, done.stderr


WAYS = ["SIGSEGV", "SIGILL", "SIGKILL", "out of memory", "exit 0", "exit 3", "exception", "hang"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One cluster for all of them."""
    found = run(tmp_path_factory.mktemp("home"), ",".join(how for how in WAYS if not deaths.missing(how)))
    deaths.tidy()
    return found


@pytest.mark.parametrize(
    ("how", "headline", "cause", "proof"),
    [
        ("SIGSEGV", "died of SIGSEGV", "null-pointer", "sum_values"),
        ("SIGILL", "died of SIGILL", "isa-mismatch", "This CPU cannot run"),
        ("SIGKILL", "was killed by SIGKILL", "external-kill", "no recorded process of the job sent it"),
        ("out of memory", "was killed by SIGKILL", "out-of-memory", "oom-kill"),
        ("exit 0", "ended with exit code 0", "worker-exit", "no signal"),
        ("exit 3", "ended with exit code 3", "worker-exit", "no signal"),
    ],
)
def test_killed_worker_says_why(job, how, headline, cause, proof):
    if lacks := deaths.missing(how):
        pytest.skip(lacks)
    said = job[0][how]
    assert said["type"] == "KilledWorker" and said["message"].startswith("Attempted to run task")
    (note,) = said["notes"]
    assert (
        note.startswith("✗ Dask worker (pid ") and f"{headline} on task work-{how.replace(' ', '-')}" in note
    )
    assert cause in note and proof in note and "What to do" in note
    assert "worker tcp://" in note and f"host {HOST}" in note


def test_events_are_logged(job):
    assert len(job[0]["events"]["causes"]) == len([how for how in WAYS[:6] if not deaths.missing(how)])
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", address.rpartition(":")[2],
             "--no-dashboard"], env=environment(tmp_path), stderr=subprocess.DEVNULL, start_new_session=True,
        )
    ]  # fmt: skip
    try:
        for preload, expected in (([], "nobody recorded this worker"), (PRELOAD, "worker-exit")):
            started.append(worker(address, tmp_path, preload))
            notes, resources = killed_worker(address, tmp_path)
            assert len(notes) == 1 and expected in notes[0], notes
            assert resources == [{"sse2": 1.0} if preload and platform.machine() == "x86_64" else {}]
            stop(started.pop())
    finally:
        for process in started:
            stop(process)


PRELOAD = ["--preload-nanny", "lastwords.engines.dask"]
CLIENT = """
import json, sys, lastwords; lastwords.enable()
import dask; dask.config.set({"distributed.scheduler.allowed-failures": 0})
from distributed import Client
from deaths import die
with Client(sys.argv[1]) as client:
    client.wait_for_workers(1)
    resources = [one["resources"] for one in client.scheduler_info()["workers"].values()]
    try:
        client.submit(die, "exit 3", pure=False).result()
    except Exception as error:
        print(json.dumps([error.__notes__, resources]))
"""


def worker(address: str, home: Path, preload: list[str]):
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-dashboard",
        *preload,
    ]
    return subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL, start_new_session=True)


def killed_worker(address: str, home: Path) -> tuple[list[str], list[dict[str, float]]]:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, address], env=environment(home), capture_output=True, text=True, timeout=90,
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
