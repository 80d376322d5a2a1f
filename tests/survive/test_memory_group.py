"""Memory admission in a real control group: nearly full, tasks run one at a time; with room again, side by side."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.prevent.container import container

LIMIT = 700 << 20
PROGRAM = """
import itertools, os, sys, time
from lastwords import ProcessPoolExecutor, postmortem

MB = 1 << 20

def grow_until(path, megabytes):
    block = bytearray(b"1") * (megabytes * MB)
    end = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    return len(block)

def span(_):
    began = time.monotonic()
    time.sleep(0.3)
    return began, time.monotonic()

def wait_until(what, true):
    end = time.monotonic() + 40
    while not true():
        assert time.monotonic() < end, what
        executor.submit(time.sleep, 0.02).result()

def are_side_by_side():
    spans = sorted(executor.map(span, range(6)))
    return any(second[0] < first[1] for first, second in itertools.pairwise(spans))

flag = sys.argv[1]
with ProcessPoolExecutor(2) as executor:
    executor.submit(int).result()
    limits = executor._supervisor._limits
    grown = executor.submit(grow_until, flag, 150)
    wait_until("the growth is seen", lambda: limits._growth > 100 * MB)
    open(flag, "w").close()
    grown.result()
    print("room:", are_side_by_side())
    full = []
    left, limit = postmortem.memory_left()
    assert limit < 1000 * MB, limit  # it is the group's
    while postmortem.memory_left()[0] > 0.07 * limit:
        full.append(bytearray(b"1") * (4 * MB))
    wait_until("the group is seen to be full", lambda: limits.is_tight)
    print("full:", are_side_by_side())
    full.clear()
    wait_until("there is room again", lambda: not limits.is_tight)
    print("room again:", are_side_by_side())
    print("deaths:", executor.stats()["deaths"])
"""


@pytest.mark.root
@pytest.mark.slow
def test_a_control_group_that_is_nearly_full_gets_its_tasks_one_after_the_other(tmp_path: Path):
    with container(memory=LIMIT, descriptors=1024, shm="64m") as inside:
        words = [sys.executable, "-c", PROGRAM, str(tmp_path / "flag")]
        done = inside.run(words, timeout=110, env=os.environ)
    assert done.stdout.splitlines() == ["room: True", "full: False", "room again: True", "deaths: 0"], (
        done.stderr
    )
