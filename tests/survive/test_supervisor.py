"""The supervisor alone: what executor and loader both stand on."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lastwords.survive import worker
from lastwords.survive.deaths import Death
from lastwords.survive.supervisor import Supervisor
from lastwords.survive.tasks import Task
from tests.survive import deadly

PATIENCE = 60
LARGE = 1 << 20


class Noted(Task):
    """Puts what became of it into a queue."""

    __slots__ = ("outcomes",)

    def __init__(self, outcomes: queue.SimpleQueue, *call: Any, **options: Any) -> None:
        super().__init__(call[0], tuple(call[1:]), **options)
        self.outcomes = outcomes

    def succeeded(self, value: Any) -> None:
        self.outcomes.put((self.label, value))

    def failed(self, error: BaseException) -> None:
        self.outcomes.put((self.label, error))


@pytest.fixture
def outcomes() -> queue.SimpleQueue:
    return queue.SimpleQueue()


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    one = Supervisor(2, multiprocessing.get_context("fork"))
    yield one
    one.stop()


def where() -> tuple[int, int]:
    assert worker.current is not None
    return worker.current.index, os.getpid()


def test_a_directed_task_runs_in_its_own_seat(supervisor: Supervisor, outcomes: queue.SimpleQueue):
    for label in range(20):
        supervisor.submit(Noted(outcomes, where, label=label, seat=label % 2))
    found = dict(outcomes.get(timeout=PATIENCE) for _ in range(20))
    assert {label: seat for label, (seat, _) in found.items()} == {label: label % 2 for label in range(20)}
    assert len({pid for _, pid in found.values()}) == 2


class DiesUntilTold(Noted):
    __slots__ = ()

    def killed(self, death: Death) -> None:
        assert death.task is self and death.position == 7
        self.args = ("live",)


def die_at_item_seven(what: str) -> str:
    assert worker.current is not None
    worker.current.at_item(7)
    if what == "die":
        os._exit(3)
    return what


def test_the_owner_restores_what_a_killed_task_needs(supervisor: Supervisor, outcomes: queue.SimpleQueue):
    supervisor.submit(DiesUntilTold(outcomes, die_at_item_seven, "die", label=1, seat=1))
    assert outcomes.get(timeout=PATIENCE) == (1, "live")


def pattern(byte: int) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(bytearray([byte]) * LARGE)


def address(buffer: object) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # type: ignore[arg-type]


def test_large_results_are_borrowed_and_their_place_used_again(
    supervisor: Supervisor, outcomes: queue.SimpleQueue
):
    """What is kept never changes; what is dropped is written again, at the same warm place."""
    places = []
    for byte in range(8):
        supervisor.submit(Noted(outcomes, pattern, byte, seat=0))
        (_, value) = outcomes.get(timeout=PATIENCE)
        assert bytes(value) == bytes([byte]) * LARGE
        places.append(address(value))
        if byte == 0:
            kept = value
        del value
        gc.collect()
    assert bytes(kept) == bytes(LARGE)
    assert places.count(places[0]) == 1
    assert len(set(places[1:])) <= 2
    del kept


def allocated(byte: int) -> object:
    assert worker.current is not None
    buffer = worker.current.allocate(LARGE)
    view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
    view[:] = bytes([byte]) * LARGE
    return pickle.PickleBuffer(view)


def test_a_result_built_in_shared_memory_is_not_copied_and_reused(
    supervisor: Supervisor, outcomes: queue.SimpleQueue
):
    for byte in range(5):
        supervisor.submit(Noted(outcomes, allocated, byte, seat=0))
        (_, value) = outcomes.get(timeout=PATIENCE)
        assert bytes(value) == bytes([byte]) * LARGE
        del value


def keep_all(results: int) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(bytearray([results]) * (4 * LARGE))


def test_keeping_every_result_never_stalls_nor_changes_one(outcomes: queue.SimpleQueue):
    """Far more than the budget is kept: beyond half of it, results are copied out."""
    one = Supervisor(1, multiprocessing.get_context("fork"), budget=16 * LARGE)
    for label in range(12):
        one.submit(Noted(outcomes, keep_all, label, label=label))
    kept = dict(outcomes.get(timeout=PATIENCE) for _ in range(12))
    assert all(bytes(value) == bytes([label]) * (4 * LARGE) for label, value in kept.items())
    one.stop()


def sleep_unless(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.001)
    return "long"


def touch(path: str) -> str:
    Path(path).touch()
    return "short"


def test_a_task_behind_one_that_waits_for_it_is_taken_back(outcomes: queue.SimpleQueue, tmp_path: Path):
    """Both in one worker's hands would wait for ever: the second goes to the idle worker."""
    one = Supervisor(2, multiprocessing.get_context("fork"))
    for _ in range(200):  # until tasks are known to be short, and handed out in batches
        one.submit(Noted(outcomes, deadly.work, 1))
    for _ in range(200):
        outcomes.get(timeout=PATIENCE)
    flag = str(tmp_path / "flag")
    for _ in range(20):
        one.submit(Noted(outcomes, deadly.work, 1))
    one.submit(Noted(outcomes, sleep_unless, flag))
    one.submit(Noted(outcomes, touch, flag))
    found = [outcomes.get(timeout=PATIENCE)[1] for _ in range(22)]
    assert {"long", "short"} <= set(found)
    one.stop()


def unreadable() -> object:
    return Unreadable()


class Unreadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return refuse, ()


def refuse() -> None:
    if multiprocessing.parent_process() is None:
        raise KeyError("not in the parent")


def test_data_that_cannot_travel_fails_its_own_task_only(supervisor: Supervisor, outcomes: queue.SimpleQueue):
    supervisor.submit(Noted(outcomes, deadly.take, lambda: 0, label=0))
    supervisor.submit(Noted(outcomes, unreadable, label=1))
    supervisor.submit(Noted(outcomes, deadly.work, 4, label=2))
    found = dict(outcomes.get(timeout=PATIENCE) for _ in range(3))
    assert isinstance(found[0], pickle.PicklingError) and "lambda" in str(found[0])
    assert isinstance(found[1], pickle.PicklingError) and "KeyError" in str(found[1])
    assert found[2] == 40


def test_workers_end_with_their_parent(home: Path):
    program = """
        import os, signal, time
        from lastwords.survive.executor import ProcessPoolExecutor
        executor = ProcessPoolExecutor(2)
        busy = [executor.submit(time.sleep, 600) for _ in range(2)]
        idle = ProcessPoolExecutor(1)
        pid = idle.submit(os.getpid).result()
        while len(executor._supervisor.pids()) < 2: pass
        print(pid, *executor._supervisor.pids(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    # Its output ends when the last process that holds it does.
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    pids = list(map(int, done.stdout.split()))
    assert done.returncode == -9 and len(pids) == 3
    assert not any(os.path.exists(f"/proc/{pid}/fd/1") for pid in pids)
    for pid in pids:  # orphans of a process that is a subreaper by now, as the tests of doctor make it
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    shutil.rmtree(home / "runs")  # what `lastwords list` takes up when it is asked next


def test_killing_a_worker_that_has_just_died_is_no_error(supervisor: Supervisor, outcomes: queue.SimpleQueue):
    """Seen when all initializers abort: the pool breaks while the last worker is dead and not yet heard of."""
    supervisor.submit(Noted(outcomes, where, label=1))
    _, (_, pid) = outcomes.get(timeout=PATIENCE)

    def kill_twice() -> None:
        """By the owner, who hears of no death meanwhile."""
        handle = next(seat.worker for seat in supervisor._dispatch.seats if seat.worker is not None)
        os.kill(handle.pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, handle.pidfd, os.WEXITED | os.WNOWAIT)
        handle.kill()
        outcomes.put((2, "killed twice"))

    supervisor.note(kill_twice)
    assert outcomes.get(timeout=PATIENCE) == (2, "killed twice")
    supervisor.submit(Noted(outcomes, where, label=3))
    label, (_, next_pid) = outcomes.get(timeout=PATIENCE)
    assert label == 3 and next_pid != pid


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_its_own_leaves_no_worker_behind(outcomes: queue.SimpleQueue):
    """Whether tasks run or the pool is already broken; the fixture of this folder looks for what is left."""
    for is_broken in (False, True):
        one = Supervisor(2, multiprocessing.get_context("fork"))
        one.start_all()
        one.submit(Noted(outcomes, where, label=1))
        assert isinstance(outcomes.get(timeout=PATIENCE)[1], tuple)
        pids = one.pids()

        def err(one: Supervisor = one, is_broken: bool = is_broken) -> None:
            one.broken = RuntimeError("broken before") if is_broken else None
            raise RuntimeError("an error of ours")

        one.note(err)
        one.join(PATIENCE)
        assert not one.is_alive() and not any(Path(f"/proc/{pid}").exists() for pid in pids)
