"""Engines that end a worker for its memory, with a signal like any other: the watcher says who, and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lastwords.diagnosis import diagnose
from lastwords.evidence.store import Store
from tests.watch.running import clean_environment, python, run, run_words

ENGINES = Path(__file__).parent.parent / "engines"

MONITOR = """
    import multiprocessing, os, sys, time
    import lastwords
    from lastwords import recording
    def work(ready):
        with lastwords.item("a", index=5):
            ready.set()
            time.sleep(10 ** 6)
    if __name__ == "__main__":
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        worker = context.Process(target=work, args=(ready,))
        worker.start()
        ready.wait()
        if sys.argv[1] == "memory":
            recording.note_stop(worker.pid, "memory", "the monitor saw 3 GiB of 2 GiB")
        worker.terminate()
        worker.join()
        sys.exit(7)
"""


def test_a_monitor_that_says_why(tmp_path: Path) -> None:
    done = run(tmp_path, python(MONITOR, "memory"))
    assert done.returncode == 7, done.stderr
    (found,) = Store(tmp_path).all()
    assert found.item is not None and found.item.index == 5
    assert found.status is not None and found.status.signal == "SIGTERM"
    (sent,) = found.sent_signals or ()
    assert (sent.reason, sent.is_for_memory) == ("the monitor saw 3 GiB of 2 GiB", True)
    best = diagnose(found).best
    assert best is not None and (best.id, best.facts["limit"]) == ("out-of-memory", "engine limit")
    assert best.sentence == "Its engine ended it for its memory: the monitor saw 3 GiB of 2 GiB."


def test_a_pool_that_just_stops_its_workers_is_healthy(tmp_path: Path) -> None:
    done = run(tmp_path, python(MONITOR, "no reason"))
    assert (done.returncode, done.stderr, list(Store(tmp_path).all())) == (7, "", [])


@pytest.mark.heavy
@pytest.mark.slow
def test_dask_s_nanny(tmp_path: Path) -> None:
    """A real LocalCluster under a plain `lastwords run`."""
    pytest.importorskip("distributed")
    job = [sys.executable, str(ENGINES / "dask" / "job.py"), "--limit", "memory"]
    done = subprocess.run(
        run_words(tmp_path, job),
        env=clean_environment(PYTHONPATH=str(ENGINES / "victims")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = Store(tmp_path).all()
    assert found.item is not None and found.item.key == "task work-memory"
    best = diagnose(found).best
    assert best is not None and (best.id, best.facts["limit"]) == ("out-of-memory", "engine limit")
    assert "Dask's nanny saw" in best.sentence and "of memory_limit, 0.39 GiB" in best.sentence
    assert "Its engine ended it for its memory" in done.stderr
