"""Forked workers: what waits comes in time, and the parent stays as it was."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent import futures

import pytest

import lastwords
from lastwords.record import after_import
from zoo import native

FORK = multiprocessing.get_context("fork")


def put_off_before_and_after_a_process() -> tuple[int, int]:
    before = len(after_import._put_off)
    multiprocessing.Process()
    return before, len(after_import._put_off)


def break_a_pool_of_its_own() -> str:
    with futures.ProcessPoolExecutor(1, mp_context=FORK) as pool:
        return str(getattr(pool.submit(os.abort).exception(), "__cause__", None))


def overflow_on_a_thread_of_c_code() -> None:
    native.load().stack_overflow_on_c_thread()


def test_adapters_of_pools_wait_until_somebody_makes_a_process():
    import concurrent.futures.process  # noqa: F401  # loaded in the parent, and so in its forks

    with lastwords.ProcessPoolExecutor(1, mp_context=FORK) as pool:
        before, after = pool.submit(put_off_before_and_after_a_process).result()
    assert before > 0
    assert after == 0


def test_a_pool_inside_of_a_worker_is_adapted_to_in_time():
    with lastwords.ProcessPoolExecutor(1, mp_context=FORK) as pool:
        told = pool.submit(break_a_pool_of_its_own).result()
    assert "SIGABRT" in told
    assert "abort" in told  # the task, by its name


def test_threads_of_c_code_have_a_stack_to_crash_on():
    """Where `pthread_create` is called from was found in the parent, and is redirected in its forks."""
    native.load()
    policy = lastwords.Policy(retries=0)
    with (
        lastwords.ProcessPoolExecutor(1, mp_context=FORK, policy=policy) as pool,
        pytest.raises(lastwords.WorkerDied) as died,
    ):
        pool.submit(overflow_on_a_thread_of_c_code).result()
    found = died.value.diagnosis
    assert found is not None and found.best is not None
    assert found.best.id == "stack-overflow"


AS_IT_WAS = """
import gc, multiprocessing, os, threading, lastwords

def state():
    with open("/proc/self/status") as file:
        caught = [line for line in file if line.startswith("SigCgt")]
    with open("/proc/self/maps") as file:
        return caught, sorted(os.listdir("/proc/self/fd")), file.read().count("memfd:lastwords-worker")

thread = threading.Thread(target=int)  # with the first one, glibc installs a handler of its own
thread.start()
thread.join()
before = state()
with lastwords.item("not recorded"):
    assert state() == before
with lastwords.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
    assert list(pool.map(abs, range(10))) == list(range(10))
    assert state()[0] == before[0]
gc.collect()  # the workers' handles
assert state() == before, (before, state())
"""


def test_the_parent_is_left_as_it_was():
    """It marks items though nobody records it, looks up what its workers need, and rehearses with them: without a handler,
    a file or a mapping of its own.
    """
    command = [sys.executable, "-c", AS_IT_WAS]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
