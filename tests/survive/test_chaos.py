"""Workers die at random while tasks run: every result comes once, with the right value, in the right future.

As a test it is small. `make soak` runs the large one:

    python -m tests.survive.test_chaos --tasks 200000 --kills 2000
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future

import pytest

from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy
from tests.survive import deadly

WORKERS = 3
TIMEOUT = 3.0
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)
"""From outside, at any moment. A stopped worker hangs: the time-out finds it."""
FROM_INSIDE = ("exit 0", "hang")
LEAD = 20
"""Deaths by which tasks may be ahead of the killer; and tasks between two looks at that."""


def square(item: int) -> int:
    """Some 100 µs of work."""
    for _ in range(3000):
        pass
    return item * item


class Killer(threading.Thread):
    """Kills workers until so many have died. A signal may hit somebody who is dying already: deaths count, and not what
    was sent.
    """

    def __init__(self, executor: ProcessPoolExecutor, kills: int, tasks: int) -> None:
        super().__init__(name="killer", daemon=True)
        self._executor = executor
        self._kills = kills
        self._tasks = tasks
        self._random = random.Random(7)
        self.is_over = threading.Event()
        self.sent: Counter[str] = Counter()

    def run(self) -> None:
        while not self.is_over.wait(0.005):
            if self._executor.stats()["deaths"] >= self._kills:
                return
            if not self._is_any_starting():
                self._kill_one()

    def _is_any_starting(self) -> bool:
        """Whoever kills faster than workers start kills the pool, and is told so."""
        supervisor = self._executor._supervisor
        try:
            return supervisor is None or supervisor._dispatch.is_any_starting()
        except ValueError:  # its memory was closed between the two
            return True

    def is_behind(self, submitted: int) -> bool:
        """By more than a few: tasks take less time than deaths, and would be done before the half of them."""
        deaths = self._executor.stats()["deaths"]
        return deaths < self._kills and deaths + LEAD < (self._kills + LEAD) * submitted / self._tasks

    def _kill_one(self) -> None:
        supervisor = self._executor._supervisor
        pids = supervisor.pids() if supervisor is not None else []
        # Stopping costs a whole time-out each: one in twenty.
        weights = [10, 9, 1]
        number = self._random.choices(SIGNALS, weights)[0]
        if pids:
            try:
                os.kill(self._random.choice(pids), number)
                self.sent[number.name] += 1
            except ProcessLookupError:
                return


def chaos(tasks: int, kills: int, suicides: int) -> dict[str, object]:
    """Raises AssertionError if a single result is wrong, missing or not its future's."""
    calls: Counter[int] = Counter()
    logging.disable(logging.WARNING)
    # An innocent task may be hit again and again: it is tried as often as it takes.
    policy = Policy(retries=1000, timeout=TIMEOUT, on_poison="skip")
    began = time.monotonic()
    with ProcessPoolExecutor(WORKERS, policy=policy) as executor:
        executor.submit(deadly.work, 1).result(60)
        killer = Killer(executor, kills, tasks)
        killer.start()
        futures: list[Future[int]] = []
        for item in range(tasks):
            while item % LEAD == 0 and killer.is_behind(item):
                time.sleep(0.005)
            futures.append(executor.submit(square, item))
        for item, future in enumerate(futures):
            future.add_done_callback(lambda _, item=item: calls.update([item]))  # type: ignore[misc]
        wrong = [item for item, future in enumerate(futures) if future.result(600) != item * item]
        killer.is_over.set()
        killer.join()
        stats = executor.stats()
    inside = die_from_inside(suicides)
    logging.disable(logging.NOTSET)
    assert wrong == []
    assert calls == Counter(range(tasks))
    assert stats["poisoned"] == 0
    return {
        "tasks": tasks,
        "sent": dict(killer.sent),
        "from inside": inside,
        "seconds": time.monotonic() - began,
        **stats,
    }


def die_from_inside(count: int) -> int:
    """Tasks that end their worker, each among twenty that do not."""
    with ProcessPoolExecutor(WORKERS, policy=Policy(retries=0, timeout=0.5, on_poison="skip")) as executor:
        ways = [FROM_INSIDE[index % 20 == 0] for index in range(count)]
        deadly_ones = []
        futures = []
        for way in ways:
            deadly_ones.append(executor.submit(deadly.die_running, way))
            futures += [executor.submit(square, item) for item in range(20)]
        assert [future.result(600) for future in futures] == [item * item for _ in ways for item in range(20)]
        assert [future.result(600) for future in deadly_ones] == [None] * count
        assert executor.stats()["poisoned"] == count
    return count


@pytest.mark.slow
def test_random_deaths_cost_no_result():
    found = chaos(tasks=6000, kills=40, suicides=10)
    assert isinstance(found["deaths"], int) and found["deaths"] > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--suicides", type=int, default=200)
    options = parser.parse_args()
    found = chaos(options.tasks, options.kills, options.suicides)
    for name, value in found.items():
        print(f"{name:12} {value}")
    print("every result came once, with the right value, in the right future")
    if (deaths := found["deaths"]) < options.kills:
        print(f"but only {deaths} workers of {options.kills} were killed before all was done: more --tasks")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
