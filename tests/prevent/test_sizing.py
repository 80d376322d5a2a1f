"""How many workers: the arithmetic."""

from __future__ import annotations

from lastwords.prevent.measured import LoaderSettings, ProcessMeasures, Trial
from lastwords.prevent.sizing import Recommendation, Room
from lastwords.prevent.sizing import recommend as recommend_or_not

MB, GB, MS = 10**6, 10**9, 10**6
MAIN = ProcessMeasures(pid=1, peak_bytes=500 * MB, cpu_share=0.5)
ROOM = Room(memory=64 * GB, shared_memory=32 * GB, cpus=8.0)


def recommend(found: Trial, room: Room) -> Recommendation:
    best = recommend_or_not(found, room)
    assert best is not None
    return best


def worker(**changes) -> ProcessMeasures:
    usual = {
        "pid": 2,
        "items": 100,
        "private_bytes": 100 * MB,
        "cpu_ns_per_item": 5.0 * MS,
        "wait_ns_per_item": 5.0 * MS,
        "item_ns": 10.0 * MS,
        "slowest_item_ns": 11.0 * MS,
        "busy": 0.99,
    }
    return ProcessMeasures(**{**usual, **changes})


def trial(*workers: ProcessMeasures, **changes) -> Trial:
    usual = {
        "command": ("python",),
        "seconds": 9.0,
        "ended": "stopped",
        "items": 200,
        "main": MAIN,
        "workers": workers,
        "batch_bytes": 40 * MB,
        "loader": LoaderSettings(num_workers=len(workers), batch_size=16),
    }
    return Trial(**{**usual, **changes})


def test_workers_that_the_loop_waits_for_are_bounded_by_the_cpus():
    """Each keeps a CPU busy half of its time: twice as many as CPUs that the main process leaves."""
    best = recommend(trial(worker(), worker()), ROOM)
    assert best.num_workers == int(7.5 * 2)
    assert any("→ 15 at work" in line for line in best.arithmetic)


def test_work_without_waiting_is_one_worker_for_each_cpu():
    busy = worker(cpu_ns_per_item=10.0 * MS, wait_ns_per_item=0.0)
    assert recommend(trial(busy), ROOM).num_workers == 7


def test_workers_that_are_idle_are_too_many():
    idle = [worker(busy=0.25) for _ in range(8)]
    assert recommend(trial(*idle), ROOM).num_workers == 3


def test_memory_bounds_them():
    best = recommend(trial(worker(), worker()), Room(memory=2 * GB, shared_memory=None, cpus=8.0))
    assert best.num_workers == int((2 * GB * 0.8 - 540 * MB) / (180 * MB)) == 5
    assert best.memory_limit == round((500 + 5 * 100 + 11 * 40) * MB / 0.8)


def test_shared_memory_bounds_them():
    best = recommend(trial(worker(), worker()), Room(memory=None, shared_memory=500 * MB, cpus=8.0))
    assert best.num_workers == int((500 * MB * 0.8 - 40 * MB) / (80 * MB)) == 4
    assert best.batches_in_flight == 9
    assert best.shared_memory == round(9 * 40 * MB / 0.8)


def test_where_not_one_fits_it_is_said():
    best = recommend(trial(worker()), Room(memory=None, shared_memory=64 * MB, cpus=2.0))
    assert best.num_workers == 3
    assert any("not one worker fits here" in line for line in best.arithmetic)


def test_uneven_batches_want_more_of_them_ahead():
    uneven = worker(slowest_item_ns=100.0 * MS)
    assert recommend(trial(uneven), ROOM).prefetch_factor == 4
    assert recommend(trial(worker()), ROOM).prefetch_factor == 2


def test_too_little_is_known():
    assert recommend_or_not(trial(), ROOM) is None
    assert recommend_or_not(trial(ProcessMeasures(pid=2)), ROOM) is None
    assert recommend_or_not(trial(worker(), main=None), ROOM) is None
    assert recommend_or_not(trial(worker(), is_failure=True, batch_bytes=None), ROOM) is None
