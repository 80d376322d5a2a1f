"""Phase × way of dying × start method → what becomes of the killer and of its neighbours. One row each.

After each row the fixture in conftest.py looks for what may be left: processes, descriptors, mappings, threads, boxes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy, WorkerDied
from lastwords.survive.quarantine import Quarantine
from tests.survive import deadly

NEIGHBOURS = 20
EXPECTED = [item * 10 for item in range(NEIGHBOURS)]
PATIENCE = 60
TIMEOUT = 1.0
SIGNS = {
    "segfault": "SIGSEGV",
    "sigkill": "SIGKILL",
    "exit 0": "exit code 0",
    "abort": "SIGABRT",
    "hang": "was ended after 1 s",
}


class Row(NamedTuple):
    work: Callable[..., Any] | None
    """The killer; None: the initializer is."""
    argument: Callable[[str], Any]
    killer: str
    """`poison`: raises WorkerDied after two tries. `delivered`: its result. `broken`: the pool is, and says why."""
    neighbours: str
    """`delivered`, all of them, or `broken`."""
    step: str
    """As the message has it."""


def itself(way: str) -> str:
    return way


MATRIX = {
    "unpickle task": Row(deadly.take, deadly.DiesWhenLoaded, "poison", "delivered", "loading its task"),
    "run": Row(deadly.die_running, itself, "poison", "delivered", "running"),
    "pickle result": Row(deadly.give_deadly, itself, "poison", "delivered", "sending its result"),
    "send": Row(deadly.die_sending, itself, "poison", "delivered", "sending its result"),
    "idle": Row(deadly.die_idle, itself, "delivered", "delivered", ""),
    "initializer": Row(None, itself, "broken", "broken", "starting"),
    "exit": Row(deadly.die_at_exit, itself, "delivered", "delivered", ""),
}
STARTS = ("fork", "spawn", "forkserver")
ROWS = [
    pytest.param(phase, way, start, marks=[] if start == "fork" else pytest.mark.slow)
    for start in STARTS
    for phase in MATRIX
    for way in deadly.WAYS
]


@pytest.mark.parametrize(("phase", "way", "start"), ROWS)
def test_one_death_costs_one_task(phase: str, way: str, start: str):
    row = MATRIX[phase]
    initializer = (deadly.die, (way,)) if row.work is None else (None, ())
    policy = Policy(timeout=TIMEOUT) if way == "hang" else Policy()
    context = multiprocessing.get_context(start)
    with ProcessPoolExecutor(2, context, *initializer, policy=policy) as executor:
        before = [executor.submit(deadly.work, item) for item in range(NEIGHBOURS)]
        killer = executor.submit(row.work or deadly.work, row.argument(way))
        after = [executor.submit(deadly.work, item) for item in range(NEIGHBOURS)]
        for neighbours in (before, after):
            assert outcome(neighbours) == row.neighbours
        assert outcome([killer]) == row.killer
        stats = executor.stats()
    if row.killer == "delivered":
        assert killer.result() == "delivered" and stats["poisoned"] == stats["retried"] == 0
        return
    error = killer.exception()
    assert isinstance(error, WorkerDied)
    assert f"while {row.step}" in str(error) and SIGNS[way] in str(error)
    if row.killer == "poison":
        assert error.attempts == 2
        assert error.diagnosis is not None
        assert row.work is not None and error.item is not None and error.item.startswith(row.work.__name__)
        counted = {name: stats[name] for name in ("deaths", "retried", "poisoned", "replaced")}
        assert counted == {"deaths": 2, "retried": 1, "poisoned": 1, "replaced": 2}


def outcome(futures: list[Any]) -> str:
    errors = [future.exception(PATIENCE) for future in futures]
    if not any(errors):
        results = [future.result() for future in futures]
        assert len(results) == 1 or results == EXPECTED
        return "delivered"
    assert all(isinstance(error, WorkerDied) for error in errors)
    return "poison" if errors[0].attempts else "broken"


@pytest.mark.parametrize("way", [way for way in deadly.WAYS if way != "hang"])
def test_a_task_that_dies_once_succeeds_on_its_second_try(way: str, tmp_path: Path):
    mark = tmp_path / "mark"
    mark.touch()
    with ProcessPoolExecutor(2) as executor:
        future = executor.submit(deadly.die_when_file_is_gone, str(mark), way)
        assert future.result(PATIENCE) == "survived"
        assert executor.stats()["retried"] == 1


def note_pid_and_die(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    os._exit(3)


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_task_is_poison_after_its_last_try_alone(retries: int, tmp_path: Path):
    """The first try is in company; each one more is alone in a worker of its own: with 2, it has killed twice alone."""
    path = tmp_path / "pids"
    with ProcessPoolExecutor(1, policy=Policy(retries=retries)) as executor:
        company = [executor.submit(os.getpid) for _ in range(20)]
        error = executor.submit(note_pid_and_die, str(path)).exception(PATIENCE)
        behind = [executor.submit(os.getpid) for _ in range(20)]
        others = {future.result(PATIENCE) for future in (*company, *behind)}
    pids = [int(line) for line in path.read_text().split()]
    assert isinstance(error, WorkerDied) and error.attempts == retries + 1
    assert len(set(pids)) == len(pids) == retries + 1
    assert set(pids[1:]).isdisjoint(others)


def test_a_worker_that_dies_idle_is_replaced_and_nobody_is_blamed():
    with ProcessPoolExecutor(1) as executor:
        first = executor.submit(os.getpid).result(PATIENCE)
        os.kill(first, signal.SIGKILL)
        assert executor.submit(os.getpid).result(PATIENCE) != first


def test_a_broken_pool_says_so_to_whoever_comes_later():
    with ProcessPoolExecutor(2, initializer=deadly.die, initargs=("segfault",)) as executor:
        with pytest.raises(WorkerDied, match="SIGSEGV while starting"):
            executor.submit(deadly.work, 1).result(PATIENCE)
        with pytest.raises(WorkerDied):
            executor.submit(deadly.work, 2)


def test_poison_is_skipped_replaced_or_noted(tmp_path: Path):
    with ProcessPoolExecutor(1, policy=Policy(on_poison="skip", quarantine=tmp_path / "poison")) as executor:
        assert executor.submit(deadly.die_running, "exit 0").result(PATIENCE) is None
    (noted,) = Quarantine(tmp_path / "poison").read()
    assert noted["key"] == "die_running('exit 0')" and noted["cause"] == "worker-exit"
    with ProcessPoolExecutor(1, policy=Policy(retries=0, on_poison=lambda error: error.attempts)) as executor:
        assert executor.submit(deadly.die_running, "sigkill").result(PATIENCE) == 1
    with ProcessPoolExecutor(
        1, policy=Policy(retries=0, on_poison="substitute", substitute="instead")
    ) as executor:
        assert executor.submit(deadly.die_running, "sigkill").result(PATIENCE) == "instead"
