"""Jobs that reap, fork, close, run out of files or end beside a pool: nothing hangs, and no ending is misread."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from lastwords.survive import channel
from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy, WorkerDied
from tests.survive import deadly
from tests.survive.test_life import run

PATIENCE = 60
kept: list[ProcessPoolExecutor] = []


def pool_that_is_never_shut_down(start: str, path: str) -> None:
    executor = ProcessPoolExecutor(2, multiprocessing.get_context(start))
    futures = [executor.submit(deadly.work, item) for item in range(20)]
    Path(path).write_text(str(sum(future.result(PATIENCE) for future in futures)))
    executor.submit(time.sleep, 0.05)
    kept.append(executor)


def pool_that_is_shut_down(start: str, path: str) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context(start)) as executor:
        Path(path).write_text(str(sum(executor.map(deadly.work, range(20)))))


@pytest.mark.parametrize(
    ("start", "inner"),
    [
        ("fork", "fork"),
        pytest.param("spawn", "fork", marks=pytest.mark.slow),
        pytest.param("forkserver", "fork", marks=pytest.mark.slow),
        pytest.param("spawn", "forkserver", marks=pytest.mark.slow),
        pytest.param("forkserver", "forkserver", marks=pytest.mark.slow),
    ],
)
def test_a_pool_in_a_process_of_multiprocessing_ends_with_it(start: str, inner: str, tmp_path: Path):
    """multiprocessing waits for all children of a process before it tells the process's threads to end."""
    for work in (pool_that_is_never_shut_down, pool_that_is_shut_down):
        context: Any = multiprocessing.get_context(start)
        process = context.Process(target=work, args=(inner, str(tmp_path / "sum")))
        process.start()
        process.join(PATIENCE)
        code = process.exitcode
        process.kill()
        process.join()
        process.close()
        assert code == 0
        assert (tmp_path / "sum").read_text() == "1900"
        (tmp_path / "sum").unlink()


BESIDE = """
    import multiprocessing, threading
    stop = threading.Event()

    def look():
        while not stop.is_set():
            {what}

    threading.Thread(target=look).start()
    with ProcessPoolExecutor(2, policy=Policy(retries=0)) as executor:
        for future in [executor.submit(signal.raise_signal, signal.SIGSEGV) for _ in range(4)]:
            print(str(future.exception()).splitlines()[0])
    stop.set()
"""
REAP_ANYTHING = """
            try: os.waitpid(-1, os.WNOHANG)
            except ChildProcessError: time.sleep(0.0005)
"""


def test_whoever_looks_at_all_children_takes_no_status_away():
    done = run(BESIDE.format(what="multiprocessing.active_children()"))
    assert done.stdout.count("died of SIGSEGV while running: raise_signal(") == 4, done.stdout + done.stderr


def test_a_job_that_waits_for_all_children_has_a_pool_all_the_same():
    """Whose status is gone by the time we ask; from Linux 6.15 on the kernel tells it again."""
    done = run(BESIDE.format(what=REAP_ANYTHING.strip()))
    assert done.stdout.count("while running: raise_signal(") == 4, done.stdout + done.stderr
    assert done.stdout.count("died of SIG") == 4 and done.returncode == 0


def test_a_job_that_ignores_sigchld_has_a_pool_all_the_same():
    done = run(
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with ProcessPoolExecutor(2, policy=Policy(retries=0)) as executor:
            print(sum(executor.map(abs, range(10))))
            print(type(executor.submit(os._exit, 3).exception()).__name__, executor.submit(abs, -4).result())
            print(executor.stats()["deaths"])
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("45\nWorkerDied 4\n1\n", "", 0)


def close_all_files_and_work_on(path: str) -> None:
    os.closerange(3, 256)
    while not os.path.exists(path):
        time.sleep(0.001)


def test_a_task_that_closes_all_files_costs_its_worker_only_and_no_busy_wait(tmp_path: Path):
    flag = tmp_path / "flag"
    with ProcessPoolExecutor(1, policy=Policy(retries=0)) as executor:
        pid = executor.submit(os.getpid).result(PATIENCE)
        future = executor.submit(close_all_files_and_work_on, str(flag))
        while Path(f"/proc/{pid}/fd/1").exists() and len(os.listdir(f"/proc/{pid}/fd")) > 4:
            time.sleep(0.005)
        before = time.process_time()
        time.sleep(0.5)
        spent = time.process_time() - before
        flag.touch()
        assert future.result(PATIENCE) is None  # it is published in memory, which nobody can close
        assert executor.submit(deadly.work, 3).result(PATIENCE) == 30
    assert spent < 0.4


def test_a_fork_that_uses_its_parents_pool_is_told_so():
    with ProcessPoolExecutor(1) as executor:
        executor.submit(deadly.work, 1).result(PATIENCE)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                executor.submit(deadly.work, 2)
            except BaseException as error:  # noqa: BLE001  # whatever it is, it is reported
                os.write(writing, f"{type(error).__name__}: {error}".encode())
            executor.shutdown()
            os._exit(0)
        os.close(writing)
        with open(reading) as told:
            assert f"WorkerDied: this pool belongs to process {os.getpid()}" in told.read()
        os.waitpid(child, 0)
        assert executor.submit(deadly.work, 2).result(PATIENCE) == 20


def test_submits_that_race_with_a_shutdown_are_refused_or_done():
    """Each future ends, whichever of the two comes first."""
    for _ in range(10):
        executor = ProcessPoolExecutor(1)
        executor.submit(int).result(PATIENCE)
        futures: list[Future[int]] = []
        submitter = threading.Thread(target=submit_until_refused, args=(executor, futures))
        submitter.start()
        executor.shutdown()
        submitter.join()
        ends = [future.exception(PATIENCE) for future in futures]
        assert all(end is None or isinstance(end, RuntimeError) for end in ends)


def submit_until_refused(executor: ProcessPoolExecutor, futures: list[Future[int]]) -> None:
    with contextlib.suppress(RuntimeError):
        while True:
            futures.append(executor.submit(deadly.work, 1))


def test_a_task_that_comes_after_the_end_fails_at_once():
    executor = ProcessPoolExecutor(1)
    executor.submit(int).result(PATIENCE)
    executor.shutdown()
    executor._is_shut_down = False  # as a submit sees it that has looked a moment ago
    assert isinstance(executor.submit(int).exception(PATIENCE), WorkerDied)


def wait_for(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.001)
    return "done"


def test_a_worker_whose_pipe_was_full_still_hears_that_it_shall_stop(tmp_path: Path):
    """Whoever drops thousands of large results while their worker is busy fills its pipe."""
    executor = ProcessPoolExecutor(1)
    executor.submit(int).result(PATIENCE)
    future = executor.submit(wait_for, str(tmp_path / "flag"))
    supervisor = executor._supervisor
    assert supervisor is not None
    filled = threading.Event()

    def fill() -> None:
        handle = supervisor._dispatch.seats[0].worker
        assert handle is not None
        while not handle._unsent:
            handle._send(channel.ROOM)
        filled.set()

    supervisor.note(fill)
    assert filled.wait(PATIENCE)
    executor.shutdown(wait=False)
    (tmp_path / "flag").touch()
    assert future.result(PATIENCE) == "done"
    supervisor.join(PATIENCE)
    assert not supervisor.is_alive()


def test_no_files_left_is_waited_out_and_then_told():
    done = run(
        """
        import resource, threading
        few = len(os.listdir("/proc/self/fd")) + 6
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        executor = ProcessPoolExecutor(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most[1]))
        future = executor.submit(abs, -7)
        threading.Timer(1.0, resource.setrlimit, (resource.RLIMIT_NOFILE, most)).start()
        print(future.result())
        """
    )
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr


def test_no_files_left_for_good_breaks_the_pool_with_the_reason():
    done = run(
        """
        import resource
        from lastwords.survive import starts
        starts.MOST_REFUSED = 2
        executor = ProcessPoolExecutor(1)
        few = len(os.listdir("/proc/self/fd")) + 6
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
        print(executor.submit(abs, -7).exception())
        try: executor.submit(abs, -7)
        except RuntimeError as error: print(error)
        """
    )
    told = done.stdout.splitlines()
    assert len(told) == 2 and all("Too many open files" in line for line in told), done.stdout + done.stderr


def test_what_a_worker_writes_over_its_own_memory_is_not_believed():
    with ProcessPoolExecutor(1, policy=Policy(retries=0)) as executor:
        for word in (channel.WRITTEN, channel.READ):
            error = executor.submit(scribble, word).exception(PATIENCE)
            assert isinstance(error, WorkerDied)
            assert executor.submit(deadly.work, 3).result(PATIENCE) == 30


def scribble(word: int) -> None:
    from lastwords.survive import worker

    assert worker.current is not None
    worker.current._memory.memory[channel.RING_AT : channel.RING_AT + 512] = bytes(512)
    worker.current._words[word] = 1 << 61
    worker.current._ring()
    os._exit(4)


def test_a_progress_function_that_raises_costs_the_progress_only(caplog: pytest.LogCaptureFixture):
    def refuse(counts: dict[str, int]) -> None:
        raise KeyError("no screen")

    with ProcessPoolExecutor(1, progress=refuse) as executor:
        assert executor.submit(deadly.work, 3).result(PATIENCE) == 30
    assert [record.getMessage() for record in caplog.records] == [
        "progress is not shown any more: its function raised"
    ]


def test_pools_that_come_and_go_in_threads_close_nobody_elses_files():
    """A worker is forked while other supervisors open and close theirs, and user's files take the same numbers."""
    stop = threading.Event()
    lost: list[str] = []

    def come_and_go() -> None:
        for _ in range(6):
            with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
                executor.submit(int).result(PATIENCE)

    def open_and_close() -> None:
        while not stop.is_set():
            with open("/dev/null", "rb") as file:
                if not os.path.exists(f"/proc/self/fd/{file.fileno()}"):
                    lost.append("closed")

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    other = threading.Thread(target=open_and_close)
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    other.join()
    assert lost == []


def test_a_dead_workers_signal_and_a_limit_are_left_as_they_were():
    """The pool asks nothing of the process that the job could notice."""
    before = signal.getsignal(signal.SIGCHLD), resource.getrlimit(resource.RLIMIT_NOFILE)
    with ProcessPoolExecutor(1, policy=Policy(retries=0)) as executor:
        assert isinstance(executor.submit(os._exit, 1).exception(PATIENCE), WorkerDied)
    assert (signal.getsignal(signal.SIGCHLD), resource.getrlimit(resource.RLIMIT_NOFILE)) == before
