"""What the policy allows: time, memory, growth, tries, deaths in a row."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lastwords.survive import channel, limits, weight
from lastwords.survive.breaker import CLOSED, HALF_OPEN, OPEN, Breaker
from lastwords.survive.dispatch import Dispatch
from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.handle import Functions
from lastwords.survive.policy import Policy, WorkerDied
from lastwords.survive.tasks import Task
from tests.survive import deadly

PATIENCE = 60
MB = 1 << 20
kept: list[bytearray] = []
touched: list[int] = []


def sleep_on(item: int) -> int:
    if item == 3:
        deadly.hang()
    return item


def test_a_task_that_takes_too_long_says_where_it_hangs():
    with ProcessPoolExecutor(2, policy=Policy(timeout=0.5, retries=0)) as executor:
        futures = [executor.submit(sleep_on, item) for item in range(6)]
        assert [future.result(PATIENCE) for future in futures if future is not futures[3]] == [0, 1, 2, 4, 5]
        with pytest.raises(WorkerDied, match=r"after 0\.5 s.* while running: sleep_on\(3\)") as died:
            futures[3].result(PATIENCE)
    found = died.value.diagnosis
    assert found is not None and found.best is not None and found.best.id == "hang"
    assert found.evidence.hang is not None and found.evidence.hang.answered
    assert "hang()" in found.best.sentence


def test_a_worker_that_was_stopped_right_after_a_task_is_ended_too():
    """It is at a task that nobody waits for any more. (Seen with SIGSTOP: it was asked about its hang again and again, and
    never ended)
    """
    with ProcessPoolExecutor(1, policy=Policy(timeout=0.5)) as executor:
        stopped = executor.submit(os.getpid).result(PATIENCE)
        supervisor = executor._supervisor
        assert supervisor is not None
        worker = supervisor._dispatch.seats[0].worker
        assert worker is not None and worker.pid == stopped
        os.kill(stopped, signal.SIGSTOP)
        os.waitid(os.P_PID, stopped, os.WSTOPPED | os.WNOWAIT)  # it may write there until then
        worker.words[channel.BEGAN] = time.monotonic_ns()
        worker.words[channel.RUNNING] = 1
        assert 1 not in worker.in_hand
        assert executor.submit(os.getpid).result(PATIENCE) != stopped
        assert executor.stats()["deaths"] == 1


def test_an_item_of_a_chunk_has_the_timeout_and_not_the_chunk():
    with ProcessPoolExecutor(1, policy=Policy(timeout=1.0, retries=0)) as executor:
        list(executor.map(time.sleep, [0.1] * 15, chunksize=15))
        assert executor.stats()["deaths"] == 0


def test_long_items_behind_many_short_ones_have_the_timeout_each():
    """Together they take longer than it."""
    with ProcessPoolExecutor(1, policy=Policy(timeout=1.0, retries=0)) as executor:
        list(executor.map(time.sleep, [0] * 300 + [0.1] * 15, chunksize=315))
        assert executor.stats()["deaths"] == 0


def fill(megabytes: int) -> int:
    """Writes to each page, and takes its time, so that somebody can look."""
    block = bytearray(megabytes * MB)
    block[::4096] = b"1" * len(block[::4096])
    time.sleep(1.5)
    return os.getpid()


def test_a_worker_over_its_memory_limit_is_ended_before_the_kernel_acts():
    with ProcessPoolExecutor(2, policy=Policy(memory_limit=150 * MB, retries=1)) as executor:
        futures = [executor.submit(fill, size) for size in (1, 400, 1)]
        with pytest.raises(WorkerDied, match=r"over its limit of 157 MB, while running: fill\(400\)") as died:
            futures[1].result(PATIENCE)
        assert all(futures[index].result(PATIENCE) for index in (0, 2))
    assert died.value.attempts == 2


def leak(megabytes: int) -> int:
    kept.append(bytearray(b"1") * (megabytes * MB))
    time.sleep(0.05)
    return os.getpid()


def borrow(megabytes: int) -> int:
    """Far more than it may keep, and given back before it ends."""
    block = bytearray(b"1") * (megabytes * MB)
    time.sleep(0.4)
    del block
    return os.getpid()


@pytest.mark.parametrize("policy", [Policy(recycle=60 * MB), Policy(memory_limit=150 * MB)])
def test_a_worker_that_grows_is_replaced_between_two_tasks(policy: Policy):
    with ProcessPoolExecutor(1, policy=policy) as executor:
        # Slowly enough for a busy machine: between nine tenths of the limit and all of it lie five tasks.
        pids = [future.result(PATIENCE) for future in [executor.submit(leak, 3) for _ in range(60)]]
        stats = executor.stats()
    assert stats["recycled"] >= 1 and len(set(pids)) == stats["recycled"] + 1
    assert stats["deaths"] == 0


def overwrite(megabytes: int) -> int:
    """Pages of the parent's become the worker's own; it has as many as before."""
    block, start = kept[0], len(touched)
    block[start * megabytes * MB : (start + 1) * megabytes * MB : 4096] = b"2" * (megabytes * MB // 4096)
    touched.append(megabytes)
    time.sleep(0.05)
    return os.getpid()


def test_pages_that_are_copied_from_the_parent_count_as_well():
    kept.append(bytearray(b"1") * (600 * MB))
    try:
        with ProcessPoolExecutor(1, policy=Policy(memory_limit=150 * MB)) as executor:
            pids = [future.result(PATIENCE) for future in [executor.submit(overwrite, 3) for _ in range(60)]]
            stats = executor.stats()
    finally:
        kept.clear()
    assert stats["recycled"] >= 1 and len(set(pids)) == stats["recycled"] + 1
    assert stats["deaths"] == 0


def test_what_a_task_gives_back_is_no_growth():
    with ProcessPoolExecutor(1, policy=Policy(recycle=60 * MB)) as executor:
        assert (
            len({future.result(PATIENCE) for future in [executor.submit(borrow, 100) for _ in range(3)]}) == 1
        )


def test_private_memory_does_not_count_what_a_fork_shares():
    kept.append(bytearray(b"1") * (100 * MB))
    try:
        with ProcessPoolExecutor(1) as executor:
            pid = executor.submit(os.getpid).result(PATIENCE)
            assert weight.own_bytes(pid) > 100 * MB
            assert weight.private_bytes(pid) < 50 * MB
    finally:
        kept.clear()


def test_what_is_certain_to_happen_again_is_not_tried_again():
    policy = Policy(retries=3)
    assert not policy.tries_again(1, "isa-mismatch")
    assert policy.tries_again(3, "native-crash") and not policy.tries_again(4, "native-crash")
    assert policy.tries_again(8, "external-kill", is_innocent=True)
    assert not Policy(retries=0).tries_again(1, "external-kill", is_innocent=True)
    assert policy.pause(1, is_innocent=True) > 0 == policy.pause(1, is_innocent=False)


@pytest.mark.parametrize(
    "wrong",
    [{"retries": -1}, {"on_poison": "ignore"}, {"timeout": 0}, {"memory_limit": -5}, {"intensity": (3,)}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Policy(**wrong)


def test_the_breaker_opens_half_opens_and_closes():
    breaker = Breaker((2, 10.0))
    assert [breaker.died(now) for now in (0.0, 1.0, 12.0, 13.0)] == [False] * 4
    assert breaker.died(14.0)
    breaker.pass_time(30.0)
    assert breaker.state == OPEN  # nobody has said why
    breaker.reason = WorkerDied("why")
    breaker.pass_time(23.9)
    assert breaker.state == OPEN and not breaker.died(23.9)
    breaker.pass_time(24.1)
    assert breaker.state == HALF_OPEN
    assert breaker.died(24.2) and breaker.state == OPEN
    breaker.reason = WorkerDied("again")
    breaker.pass_time(40.0)
    breaker.finished()
    assert breaker.state == CLOSED and breaker.reason is None


def test_too_many_deaths_fail_the_rest_with_the_diagnosis_until_a_task_succeeds():
    with ProcessPoolExecutor(1, policy=Policy(retries=0, intensity=(2, 60.0))) as executor:
        deadly_ones = [executor.submit(deadly.die_running, "exit 0") for _ in range(30)]
        errors = [future.exception(PATIENCE) for future in deadly_ones]
        opened = time.monotonic()
        assert all(isinstance(error, WorkerDied) and error.diagnosis is not None for error in errors)
        assert "more than 2 workers died in 60 s" in str(errors[-1])
        assert executor.stats()["deaths"] == 3
        assert isinstance(executor.submit(deadly.work, 1).exception(PATIENCE), WorkerDied)
        assert executor._supervisor is not None
        executor._supervisor._breaker._seconds = 1.0  # however long the deaths took, the pause is short
        wait_until(lambda: executor.submit(deadly.work, 1).exception(PATIENCE) is None)
        assert time.monotonic() - opened < 30
        assert executor.submit(deadly.work, 2).result(PATIENCE) == 20


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_after_out_of_memory_a_task_has_the_machine_for_itself():
    dispatch = Dispatch(2, Functions(), None)
    task = Task(deadly.work, (1,))
    dispatch.alone(task, is_quiet=True)
    assert dispatch.is_held_back()
    assert not dispatch._is_quiet_enough(task) or not any(seat.in_hand for seat in dispatch.seats)
    assert dispatch.take_waiting() == [task]
    dispatch.fill()
    assert not dispatch.is_held_back()


def span(path: str) -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(0.3)
    Path(path).touch()
    return began, time.monotonic()


def die_of_memory_once(path: str) -> tuple[float, float]:
    """The first time it grows over the limit of its worker; then it is modest."""
    began = time.monotonic()
    if not os.path.exists(path):
        Path(path).touch()
        fill(400)
    time.sleep(0.3)
    return began, time.monotonic()


def test_the_second_try_after_out_of_memory_has_nothing_beside_it(tmp_path: Path):
    with ProcessPoolExecutor(2, policy=Policy(memory_limit=150 * MB)) as executor:
        large = executor.submit(die_of_memory_once, str(tmp_path / "mark"))
        others = [executor.submit(span, str(tmp_path / str(index))) for index in range(12)]
        began, ended = large.result(PATIENCE)
        spans = [future.result(PATIENCE) for future in others]
    assert executor.stats()["retried"] == 1
    assert all(end <= began or ended <= begin for begin, end in spans)


def test_a_full_machine_gets_its_tasks_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(limits, "WORTH_GUARDING", 0)
    monkeypatch.setattr(limits, "SELDOM", 0.02)
    monkeypatch.setattr("lastwords.postmortem.memory_left", lambda: (1, 100 * MB))
    with ProcessPoolExecutor(2) as executor:
        supervisor = executor._supervisor
        while (
            supervisor is None or supervisor._dispatch.side_by_side != 1
        ):  # it looks now and then, while there is work
            for future in [executor.submit(leak, 8) for _ in range(8)]:
                future.result(PATIENCE)
            supervisor = executor._supervisor
        futures = [executor.submit(span, str(tmp_path / str(index))) for index in range(5)]
        spans = sorted(future.result(PATIENCE) for future in futures)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_what_is_in_quarantine_is_not_run_again_until_a_library_changes(tmp_path: Path):
    path = tmp_path / "poison.jsonl"
    policy = Policy(retries=0, quarantine=path)
    with ProcessPoolExecutor(1, policy=policy) as executor:
        assert isinstance(executor.submit(deadly.die_running, "exit 0").exception(PATIENCE), WorkerDied)
    with ProcessPoolExecutor(1, policy=policy) as executor:
        with pytest.raises(WorkerDied, match=r"die_running\('exit 0'\) is in quarantine"):
            executor.submit(deadly.die_running, "exit 0").result(PATIENCE)
        assert executor.submit(deadly.work, 2).result(PATIENCE) == 20
        assert executor.stats()["deaths"] == 0
    line = json.loads(path.read_text())
    line["versions"]["python"] = "2.7.18"
    path.write_text(json.dumps(line) + "\n")
    with ProcessPoolExecutor(1, policy=policy) as executor:
        assert "exit code 0" in str(executor.submit(deadly.die_running, "exit 0").exception(PATIENCE))
