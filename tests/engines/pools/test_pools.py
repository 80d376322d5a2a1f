"""Pools of all kinds, each with a worker that dies: the item is named, and the error keeps its type."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing.pool import Pool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lastwords.engines import multiprocessing_pool
from tests.engines.victims import deaths

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(700)]

HERE = Path(__file__).parent
PYTHON = Path(sys.executable)
RUN = [sys.executable, "-m", "lastwords", "run", "--quiet", "--"]


@pytest.fixture(autouse=True)
def _a_compiler():
    if lacks := deaths.missing("SIGSEGV"):
        pytest.skip(lacks)


def environment(home: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("LASTWORDS")}
    paths = os.pathsep.join((str(Path(deaths.__file__).parent), str(HERE)))
    return {**own, "LASTWORDS_HOME": str(home), "PYTHONPATH": paths, "HF_HOME": str(home / "hf")}


def run(home: Path, *words: str, before: list[str] | None = None):
    done = subprocess.run(
        [*(RUN if before is None else before), sys.executable, str(HERE / "job.py"), *words],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_concurrent_futures(tmp_path):
    said, _ = run(tmp_path, "futures", "SIGSEGV")
    assert said["type"] == "concurrent.futures.process.BrokenProcessPool"
    assert said["message"].startswith("A process in the process pool was terminated abruptly")
    assert "died of SIGSEGV on work(5)" in said["cause"] and "null-pointer" in said["cause"]


def test_a_worker_that_takes_its_time_to_die_is_waited_for(tmp_path):
    """The pool is woken by the end of its files. (Seen as an error without its cause on a busy machine)"""
    said, _ = run(tmp_path, "futures", "files first")
    assert "died of SIGABRT on work(5)" in said["cause"]


def test_beside_lastwords_run_the_error_is_brief_and_alone_it_is_whole(tmp_path):
    """The panel is on the same terminal: twice the same is no help."""
    said, _ = run(tmp_path, "futures", "SIGSEGV")
    assert "your code  " in said["cause"] and "fix  " in said["cause"] and "What to do" not in said["cause"]
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    said, _ = run(tmp_path, "futures", "SIGSEGV", before=["env", f"LASTWORDS={directory}"])
    assert "your code  " in said["cause"] and "What to do" in said["cause"]


def test_a_hang_that_lastwords_run_ended_is_no_riddle_to_the_job(tmp_path):
    """Its box is with the watcher, which says what happened: the pool's error must not guess who sent SIGKILL."""
    before = [*RUN[:-1], "--hang-after", "1", "--kill-hung", "--"]
    said, _ = run(tmp_path, "futures", "hang", before=before)
    assert said["type"] == "concurrent.futures.process.BrokenProcessPool" and said["cause"] == ""


@pytest.mark.parametrize(
    ("which", "kind"),
    [("loky", "loky.process_executor"), ("joblib", "joblib.externals.loky.process_executor")],
)
def test_loky_and_joblib(tmp_path, which, kind):
    pytest.importorskip(which)
    said, _ = run(tmp_path, which, "SIGSEGV")
    assert said["type"] == f"{kind}.TerminatedWorkerError"
    (note,) = said["notes"]
    assert "died of SIGSEGV on work(5)" in note and "null-pointer" in note


def test_a_pools_worker_loads_little():
    """What explains is loaded when somebody has died: dataclasses alone would cost every spawned worker 6 ms."""
    code = (
        "import concurrent.futures.process, multiprocessing.pool, sys; before = set(sys.modules)\n"
        "import lastwords.engines.process_pool, lastwords.engines.multiprocessing_pool\n"
        "print(*(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"dataclasses", "msgspec", "rich", "lastwords.postmortem", "lastwords.engines.contract"} & set(
        loaded
    )


def test_multiprocessing_pool_says_what_it_waits_for(tmp_path):
    """Without `lastwords run`, by the variable alone: its worker's death raises nothing at all."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    said, stderr = run(tmp_path, "pool", "exit 3", before=["env", f"LASTWORDS={directory}"])
    assert said["type"] == "multiprocessing.context.TimeoutError"
    assert "ended with exit code 3 on work(5)" in stderr and "worker-exit" in stderr
    assert "whoever waits for the result waits for ever" in stderr


def test_a_worker_that_dies_while_the_pool_looks_is_told_all_the_same(monkeypatch):
    """It lives when its adapter looks and is dead a moment later: the pool must not bury it before it is told."""
    told: list[Any] = []
    monkeypatch.setattr(multiprocessing_pool, "_tell", told.append)
    real: Any = Pool
    module: Any = SimpleNamespace(Pool=type("Pool", (), {"_join_exited_workers": real._join_exited_workers}))
    multiprocessing_pool.adapt(module)
    well, dying = Dying(None, None), Dying(None, -11)
    workers = [well, dying]
    assert not module.Pool._join_exited_workers(workers)
    assert workers == [well, dying] and told == []
    assert module.Pool._join_exited_workers(workers)
    assert workers == [well] and told == [dying]


class Dying:
    def __init__(self, *codes: int | None) -> None:
        self._codes = list(codes)

    @property
    def exitcode(self) -> int | None:
        """What it is from one look to the next; the last one stays."""
        return self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]

    def join(self) -> None:
        assert self.exitcode is not None


def test_hugging_face_datasets(tmp_path):
    pytest.importorskip("datasets")
    said, stderr = run(tmp_path, "datasets", "SIGSEGV")
    assert said["type"] == "builtins.RuntimeError" and "abruptly died" in said["message"]
    assert len(said["notes"]) == 1, stderr
    (note,) = said["notes"]
    assert "died of SIGSEGV on shard 0, rows 0 to 7" in note and "null-pointer" in note


def test_pytest_xdist(tmp_path):
    pytest.importorskip("xdist")
    done = subprocess.run(
        [*RUN, sys.executable, "-m", "pytest", "-n1", "-q", "-p", "no:cacheprovider",
         "-c", "/dev/null", str(HERE / "crashing.py")],
        env=environment(tmp_path), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout
    assert "worker 'gw0' crashed while running" in done.stdout
    said = " ".join(done.stdout.split())
    assert "died of SIGSEGV on" in said and "crashing.py::test_that_kills null-pointer" in said


def test_gunicorn(tmp_path):
    pytest.importorskip("gunicorn")
    socket, log = tmp_path / "socket", tmp_path / "log"
    server = subprocess.Popen(
        [*RUN, str(PYTHON.with_name("gunicorn")), "-w1", f"--bind=unix:{socket}", f"--error-logfile={log}", "app:wsgi"],
        env=environment(tmp_path), cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: socket.exists() and "Booting worker" in log.read_text())
        ask(socket, "/die?token=secret")
        wait_until(lambda: "null-pointer" in log.read_text())
    finally:
        server.terminate()
        server.wait(100)  # gunicorn alone gives its workers 30 seconds
    said = log.read_text()
    assert "died of SIGSEGV on request GET /die" in said and "secret" not in said
    assert "was sent SIGSEGV!" in said  # gunicorn's own words


def test_celery(tmp_path):
    pytest.importorskip("celery")
    for name in ("queue", "control", "results"):
        (tmp_path / name).mkdir()
    variables = {**environment(tmp_path), "CELERY_FILES": str(tmp_path), "C_FORCE_ROOT": "1"}
    log = tmp_path / "log"
    worker = subprocess.Popen(
        [*RUN, str(PYTHON.with_name("celery")), "-A", "app", "worker", "-c1", "-Pprefork", "-linfo", "-f", str(log)],
        env=variables, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    ask_and_print = (
        "import app, json\n"
        "result = app.work.delay('SIGSEGV')\n"
        "try: result.get(timeout=300)\n"
        "except Exception as error: print(json.dumps([type(error).__name__, str(error)]))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", ask_and_print], env=variables, cwd=HERE, capture_output=True, text=True, timeout=400,
            check=True,
        )  # fmt: skip
    finally:
        # At once: a warm shutdown may wait for a lock that the dead worker held, with or without us.
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    kind, message = json.loads(done.stdout.splitlines()[-1])
    assert kind == "WorkerLostError" and message.startswith("Worker exited prematurely: signal 11 (SIGSEGV)")
    assert "died of SIGSEGV on task work" in message and "null-pointer" in message
    assert "null-pointer" in log.read_text()


def ask(socket: Path, path: str) -> None:
    import http.client
    import socket as sockets

    connection = http.client.HTTPConnection("localhost")
    connection.sock = sockets.socket(sockets.AF_UNIX)
    connection.sock.connect(str(socket))
    try:
        connection.request("GET", path)
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        pass  # it died before it answered
    finally:
        connection.close()


def wait_until(condition, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)
