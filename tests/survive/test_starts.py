"""When workers cannot be kept: a few failures in a row are borne, a burst from outside too, and then it is enough."""

from __future__ import annotations

import os
import signal
import time

from lastwords.survive import starts
from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy
from lastwords.survive.starts import Starts


def die_idle(one: Starts, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        one.died_idle(now, while_starting=False, has_finished=False)


def test_the_first_are_replaced_at_once_and_the_others_after_a_pause():
    one = Starts()
    die_idle(one, starts.REPLACED_AT_ONCE)
    assert one.may_begin(0.0)
    die_idle(one, 1)
    assert not one.may_begin(0.0) and one.is_pausing(0.0)
    assert one.may_begin(starts.PAUSE) and not one.are_hopeless(after_start=False)


def test_a_task_that_is_done_makes_good_for_all():
    one = Starts()
    die_idle(one, starts.MOST_IDLE_DEATHS - 1)
    one.finished()
    die_idle(one, starts.MOST_IDLE_DEATHS - 1)
    assert not one.are_hopeless(after_start=False)
    die_idle(one, 1)
    assert one.are_hopeless(after_start=False)


def test_workers_that_die_while_they_start_end_it_soon_unless_somebody_killed_them():
    one = Starts()
    for _ in range(starts.MOST_FAILED):
        one.died_idle(0.0, while_starting=True, has_finished=False)
    assert not one.may_begin(0.0)
    assert one.are_hopeless(after_start=True)
    assert not one.are_hopeless(after_start=False), "another death is explained before those"
    one.was_killed_from_outside()
    assert one.failed < starts.MOST_FAILED
    assert one.may_begin(0.0)


def test_a_burst_of_kills_from_outside_breaks_no_pool():
    """As fast as workers come, and most of them while they start: the pool takes its time, and does all tasks."""
    with ProcessPoolExecutor(1, policy=Policy(retries=1000)) as executor:
        assert executor.submit(pow, 2, 3).result(60) == 8
        futures = [executor.submit(slowly, number) for number in range(20)]
        _kill_those_that_come(executor, starts.REPLACED_AT_ONCE + 3)
        assert [future.result(60) for future in futures] == list(range(20))


def slowly(number: int) -> int:
    time.sleep(0.02)
    return number


def _kill_those_that_come(executor: ProcessPoolExecutor, count: int) -> None:
    killed: set[int] = set()
    supervisor = executor._supervisor
    assert supervisor is not None
    while len(killed) < count:
        for pid in set(supervisor.pids()) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        time.sleep(0.001)
