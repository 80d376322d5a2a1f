"""Beginnings and ends of executors: interrupts, exits, nests, forks, many tasks at once."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy
from tests.survive import deadly

PATIENCE = 60


def run(program: str, **options: object) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-c",
        "from lastwords import *\nimport os, signal, time\n" + textwrap.dedent(program),
    ]
    # Its output ends when the last process that holds it does: nothing is left behind.
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_the_interpreter_ends_after_what_was_submitted():
    done = run(
        """
        def tell(item): os.write(1, b"%d\\n" % item)  # in one piece, and two workers write
        executor = ProcessPoolExecutor(2)
        for item in range(20): executor.submit(tell, item)
        """
    )
    assert sorted(map(int, done.stdout.split())) == list(range(20))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_exception_in_the_parent_ends_it_after_the_workers():
    done = run(
        """
        with ProcessPoolExecutor(2) as executor:
            executor.submit(print, "worked", flush=True).result()
            raise KeyError("mine")
        """
    )
    assert done.returncode == 1 and done.stdout == "worked\n" and "KeyError: 'mine'" in done.stderr


def test_control_c_reaches_the_job_and_the_workers_wait_to_be_told():
    done = run(
        """
        executor = ProcessPoolExecutor(2)
        executor.submit(int).result()
        os.setpgid(0, 0)
        for pid in executor._supervisor.pids(): os.setpgid(pid, os.getpid())
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted", executor.submit(pow, 2, 3).result())
        executor.shutdown()
        print(executor.stats()["deaths"])
        """
    )
    assert done.stdout == "interrupted 8\n0\n" and done.returncode == 0, done.stderr


def test_control_c_while_a_task_runs_is_that_tasks_own_exception():
    with ProcessPoolExecutor(1) as executor:
        started = executor.submit(os.getpid).result(PATIENCE)
        future = executor.submit(time.sleep, 30)
        while not future.running() or not _is_asleep(started):
            time.sleep(0.005)
        os.kill(started, signal.SIGINT)
        assert isinstance(future.exception(PATIENCE), KeyboardInterrupt)
        assert executor.submit(os.getpid).result(PATIENCE) == started


def _is_asleep(pid: int) -> bool:
    """In the sleep of the task, and not in the read that waits for one."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text() or _system_call(pid) in ("230", "35")


def _system_call(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[0]
    except OSError:
        return ""


def nested(depth: int) -> int:
    if not depth:
        return 1
    with ProcessPoolExecutor(1) as executor:
        return 1 + executor.submit(nested, depth - 1).result(PATIENCE)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_pools_in_workers_of_pools(start: str):
    with ProcessPoolExecutor(1, multiprocessing.get_context(start)) as executor:
        assert executor.submit(nested, 2).result(PATIENCE) == 3


def files_that_an_inner_worker_still_has() -> int:
    """Those of a worker that take the numbers of what it closed when it was forked, and those of its own pool."""
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
    with ProcessPoolExecutor(1) as executor:
        return executor.submit(count_open, files).result(PATIENCE)


def count_open(files: list[int]) -> int:
    return sum(Path(f"/proc/self/fd/{one}").exists() for one in files)


def test_a_pool_in_a_forked_worker_closes_nobody_elses_files():
    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as executor:
        futures = [executor.submit(files_that_an_inner_worker_still_has) for _ in range(6)]
        assert [future.result(PATIENCE) for future in futures] == [40] * 6


def nested_death(way: str) -> int:
    with ProcessPoolExecutor(1, policy=Policy(on_poison="skip")) as executor:
        executor.submit(deadly.die_running, way).result(PATIENCE)
        return executor.submit(deadly.work, 4).result(PATIENCE)


def test_a_death_in_an_inner_pool_is_the_inner_pools_affair():
    with ProcessPoolExecutor(2) as executor:
        assert executor.submit(nested_death, "segfault").result(PATIENCE) == 40
        assert executor.stats()["deaths"] == 0


def test_an_executor_that_nobody_holds_finishes_and_ends():
    executor = ProcessPoolExecutor(2)
    futures = [executor.submit(deadly.work, item) for item in range(50)]
    supervisor = executor._supervisor
    assert supervisor is not None
    del executor
    gc.collect()
    assert [future.result(PATIENCE) for future in futures] == list(range(0, 500, 10))
    supervisor._thread.join(PATIENCE)
    assert not supervisor.is_alive()


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_max_tasks_per_child_means_each_worker(start: str):
    context = multiprocessing.get_context(start)
    with ProcessPoolExecutor(2, context, max_tasks_per_child=3) as executor:
        pids = Counter(future.result(PATIENCE) for future in [executor.submit(os.getpid) for _ in range(12)])
    assert max(pids.values()) <= 3 and sum(pids.values()) == 12


def test_a_thousand_tasks_are_finished_or_cancelled_at_shutdown():
    executor = ProcessPoolExecutor(2)
    futures = [executor.submit(deadly.work, item) for item in range(1000)]
    executor.shutdown()
    assert [future.result(0) for future in futures] == list(range(0, 10000, 10))


def test_a_fork_of_the_parent_leaves_the_pool_alone():
    """Whoever forks has a copy of the executor without its thread: it must not harm the workers when it ends."""
    with ProcessPoolExecutor(2) as executor:
        executor.submit(deadly.work, 1).result(PATIENCE)
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert executor.submit(deadly.work, 2).result(PATIENCE) == 20
        assert executor.stats()["deaths"] == 0


def test_workers_are_forked_while_other_threads_hold_locks():
    """Each replacement is a fork of a process full of busy threads; none of their locks may be needed by a worker."""
    stop = threading.Event()

    def be_busy() -> None:
        while not stop.is_set():
            logging.getLogger("nobody listens").debug("%s", gc.get_count())
            __import__("json").dumps({"key": [1, 2, 3]})

    threads = [threading.Thread(target=be_busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with ProcessPoolExecutor(2, policy=Policy(retries=0, on_poison="skip")) as executor:
            futures = [
                executor.submit(deadly.die_running, "sigkill")
                if item % 10 == 0
                else executor.submit(deadly.work, item)
                for item in range(100)
            ]
            found = [future.result(PATIENCE) for future in futures]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert found == [None if item % 10 == 0 else item * 10 for item in range(100)]


def wait_for(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.001)
    return "long"


def test_a_second_worker_is_started_for_what_waits_behind_a_long_task(tmp_path: Path):
    """The first has shown that tasks are short, and is handed many at once: also this one, which waits for the next."""
    flag = tmp_path / "flag"
    with ProcessPoolExecutor(2) as executor:
        for _ in range(20):
            executor.submit(deadly.work, 1).result(PATIENCE)
        assert executor._supervisor is not None and len(executor._supervisor.pids()) == 1
        long = executor.submit(wait_for, str(flag))
        while not long.running():
            time.sleep(0.001)
        executor.submit(Path.touch, flag).result(PATIENCE)
        assert long.result(PATIENCE) == "long"


def test_stats_and_the_log_tell_the_same(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="lastwords.survive")
    with ProcessPoolExecutor(1, policy=Policy(on_poison="skip")) as executor:
        executor.submit(deadly.die_running, "exit 0").result(PATIENCE)
        executor.submit(deadly.work, 1).result(PATIENCE)
    stats = executor.stats()
    assert stats.pop("passed_alone") == 0
    assert stats == {"done": 1, "deaths": 2, "retried": 1, "poisoned": 1, "replaced": 2, "recycled": 0}
    told = [record.lastwords for record in caplog.records]  # type: ignore[attr-defined]
    assert len(told) == 2
    assert told[1]["item"] == "die_running('exit 0')" and told[1]["cause"] == "worker-exit"


def test_under_lastwords_run_a_death_is_explained_once_and_to_both(home: Path, tmp_path: Path):
    """The watcher puts the box away while we read it: we hold it open."""
    program = tmp_path / "program.py"
    program.write_text(
        "import lastwords\n"
        "from tests.survive import deadly\n"
        "with lastwords.ProcessPoolExecutor(1, policy=lastwords.Policy(retries=0)) as executor:\n"
        "    error = executor.submit(deadly.die_running, 'segfault').exception()\n"
        "print('cause:', error.diagnosis.best.id)\n"
        "print('stack:', error.diagnosis.evidence.native_stack is not None)\n"
    )
    words = [sys.executable, "-m", "lastwords", "run", sys.executable, str(program)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    assert "stack: True" in done.stdout, done.stdout + done.stderr
    assert len(os.listdir(home / "deaths")) == 1
    shutil.rmtree(home / "runs", ignore_errors=True)


def test_shutdown_right_after_a_cancelled_task_ends():
    for _ in range(20):
        executor = ProcessPoolExecutor(1)
        executor.submit(int).result(PATIENCE)
        executor.submit(int).cancel()
        executor.shutdown()


@pytest.mark.parametrize("kind", ["rich", "tqdm"])
def test_progress_is_shown_where_it_is_asked_for(
    kind: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    if kind == "tqdm":
        # Its own thread, which it starts once and never ends.
        monkeypatch.setattr(pytest.importorskip("tqdm").tqdm, "monitor_interval", 0)
    with ProcessPoolExecutor(1, progress=kind) as executor:  # type: ignore[arg-type]
        for future in [executor.submit(deadly.work, item) for item in range(30)]:
            future.result(PATIENCE)
    shown = capfd.readouterr()
    assert "0 retried, 0 poisoned" in shown.out + shown.err
    assert ("100%" if kind == "rich" else "30/30") in shown.out + shown.err


def test_progress_counts_up_to_the_total():
    heard: list[dict[str, int]] = []
    with ProcessPoolExecutor(
        1, policy=Policy(retries=0, on_poison="skip"), progress=heard.append
    ) as executor:
        executor.submit(deadly.die_running, "exit 0")
        for item in range(30):
            executor.submit(deadly.work, item)
    assert heard[-1] == {"done": 31, "total": 31, "retried": 0, "poisoned": 1}


@pytest.mark.parametrize("mistake", [None, 7, "abs"])
def test_what_cannot_be_called_fails_as_with_the_standard_pool(mistake: Any):
    with ProcessPoolExecutor(1) as executor, pytest.raises(TypeError, match="not callable"):
        executor.submit(mistake).result(PATIENCE)


def test_a_method_of_something_that_changes_is_sent_as_it_is_now():
    values = [7]
    with ProcessPoolExecutor(1) as executor:
        assert executor.submit(values.count, 7).result(PATIENCE) == 1
        values.append(7)
        assert executor.submit(values.count, 7).result(PATIENCE) == 2
