"""An executor's Python daemon is ended at every moment, without a JVM around it: no box stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", minversion="4")
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

ROUNDS = 5


@contextlib.contextmanager
def daemon(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """As the executor starts it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    known = {
        **kept,
        "LASTWORDS_HOME": str(home),
        "PYTHON_WORKER_FACTORY_SECRET": "x",
        "SPARK_REUSE_WORKER": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "lastwords.spark_daemon", "pyspark.worker"],
        env=known,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # workers whose executor is gone say so
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """As Java's Process.destroy does: a signal, and then the end of its input. Until pyspark has a handler for the signal,
    which comes later than its port, the daemon dies of it.
    """
    process.send_signal(signal.SIGTERM)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() in (1, -signal.SIGTERM)


@contextlib.contextmanager
def workers(process: subprocess.Popen[bytes], count: int) -> Iterator[list[socket.socket]]:
    assert process.stdout is not None
    (port,) = struct.unpack("!i", process.stdout.read(4))
    with contextlib.ExitStack() as open_sockets:
        yield [
            open_sockets.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)
        ]


def pid_of(worker: socket.socket) -> int:
    (pid,) = struct.unpack("!i", worker.recv(4, socket.MSG_WAITALL))
    return int(pid)


def wait_for(paths: Path, pattern: str) -> list[Path]:
    while not (found := list(paths.glob(pattern))):
        time.sleep(0.001)
    return found


def test_ended_while_it_starts(tmp_path):
    with daemon(tmp_path) as process:
        wait_for(tmp_path, "runs/*")
        end(process)
    assert not list(tmp_path.glob("runs/*"))


def test_ended_while_its_workers_start(tmp_path):
    """They make their boxes after the fork, and may be late."""
    for _ in range(ROUNDS):
        with daemon(tmp_path) as process, workers(process, 3):
            end(process)
        assert not list(tmp_path.glob("runs/*"))


def test_ended_while_it_buries_its_workers(tmp_path):
    """A cancelled job: the executor has its workers killed, and stops. SIGTERM then meets the daemon between the end of
    a worker and the end of its box.
    """
    for turn in range(ROUNDS):
        with daemon(tmp_path) as process, workers(process, 3) as sockets:
            assert process.stdin is not None
            for worker in sockets:
                process.stdin.write(struct.pack("!i", pid_of(worker)))
            process.stdin.flush()
            assert sockets[turn % 3].recv(1) == b"", "one of them is dead"
            end(process)
        assert not list(tmp_path.glob("runs/*"))


def test_what_others_made_in_its_run_goes_too(tmp_path):
    """A worker's own children are recorded as well, and nobody tells the daemon of them."""
    with daemon(tmp_path) as process, workers(process, 1) as (worker,):
        pid_of(worker)
        (run,) = wait_for(tmp_path, "runs/*")
        (run / "1-1.box").write_bytes(b"of a child of a worker")
        end(process)
    assert not run.exists()
