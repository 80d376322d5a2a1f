"""A map without a chunk size: its items travel together, and nobody can tell but by the time it takes."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lastwords.survive import channel, dispatch, stretches
from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy, WorkerDied
from tests.survive import deadly

PATIENCE = 60
INSTEAD = -1
LENIENT = Policy(on_poison="substitute", substitute=INSTEAD)


@pytest.fixture
def quick() -> Iterator[ProcessPoolExecutor]:
    """Its two workers have shown that tasks are short: each is handed many at once."""
    with ProcessPoolExecutor(2, policy=LENIENT) as executor:
        assert list(executor.map(deadly.work, range(500))) == list(range(0, 5000, 10))
        yield executor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty one."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def as_it_is(value: Any) -> Any:
    return value


def test_all_kinds_of_results_come_back_as_they_are(quick: ProcessPoolExecutor):
    values: list[Any] = [
        *range(-300, 300),
        0.5,
        float("inf"),
        None,
        True,
        False,
        1 << 70,
        -(1 << 63),
        "text",
        b"bytes",
    ]
    found = list(quick.map(as_it_is, values))
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


def test_rows_travel_together_as_well(quick: ProcessPoolExecutor):
    assert list(quick.map(pow, range(200), range(1, 201), [7] * 200)) == [
        pow(n, n + 1, 7) for n in range(200)
    ]


def name_and_die_at_17(item: int) -> int:
    if item == 17:
        os._exit(3)
    return item * 10


def test_the_item_that_kills_is_named_and_all_others_are_delivered(quick: ProcessPoolExecutor):
    assert list(quick.map(name_and_die_at_17, range(100))) == [
        item * 10 if item != 17 else INSTEAD for item in range(100)
    ]
    assert quick.stats()["deaths"] == 2 and quick.stats()["poisoned"] == 1


def test_the_black_box_names_the_call():
    with ProcessPoolExecutor(1, policy=Policy(retries=0)) as executor:
        results = executor.map(name_and_die_at_17, range(-100, 100))
        assert [next(results) for _ in range(117)] == list(range(-1000, 170, 10))
        with pytest.raises(WorkerDied, match=r"exit code 3 while running: name_and_die_at_17\(17\)") as died:
            next(results)
    assert died.value.diagnosis is not None and died.value.diagnosis.evidence.item is not None
    assert died.value.diagnosis.evidence.item.index == 117
    assert died.value.diagnosis.evidence.item.key == "name_and_die_at_17(17)"


def note_and_die_at_70(item: int, folder: str) -> int:
    with open(f"{folder}/{item}", "a") as file:
        file.write("x")
    if item == 70:
        os._exit(0)
    return item


def test_what_was_finished_before_a_death_never_runs_again(quick: ProcessPoolExecutor, tmp_path: Path):
    """Not one item, and they are short: each result is published before the next item begins."""
    list(quick.map(note_and_die_at_70, range(100), [str(tmp_path)] * 100))
    runs = Counter({item: len((tmp_path / str(item)).read_text()) for item in range(100)})
    assert runs.pop(70) == 2
    assert set(runs.values()) == {1}


def note_and_raise_at_5(item: int, folder: str) -> int:
    (Path(folder) / str(item)).touch()
    if item == 5:
        raise KeyError("five")
    return item


def test_an_item_that_raises_fails_alone_and_those_behind_it_run(folder: Path):
    with ProcessPoolExecutor(1) as executor:
        list(executor.map(deadly.work, range(200)))
        results = executor.map(note_and_raise_at_5, range(40), [str(folder)] * 40)
    assert sorted(int(path.name) for path in folder.iterdir()) == list(range(40))
    assert [next(results) for _ in range(5)] == list(range(5))
    with pytest.raises(KeyError, match="five") as raised:
        next(results)
    assert "note_and_raise_at_5" in str(raised.value.__cause__)


def lambda_at_9(item: int) -> object:
    return (lambda: 0) if item == 9 else [item]


def test_a_result_that_cannot_travel_fails_alone(quick: ProcessPoolExecutor):
    results = quick.map(lambda_at_9, range(20))
    assert [next(results) for _ in range(9)] == [[item] for item in range(9)]
    with pytest.raises(pickle.PicklingError, match="lambda"):
        next(results)


def wait_or_touch(item: int, folder: str) -> int:
    """The third waits for the last but one."""
    flag = Path(folder) / "flag"
    if item == 60:
        flag.touch()
    while item == 2 and not flag.exists():
        time.sleep(0.001)
    return item


def test_items_behind_one_that_waits_for_them_are_taken_back(quick: ProcessPoolExecutor, tmp_path: Path):
    """They were handed to the same worker, and have to go to another one."""
    results = quick.map(wait_or_touch, range(62), [str(tmp_path)] * 62, timeout=PATIENCE)
    assert list(results) == list(range(62))


def wait_for_flag_at_1(item: int, folder: str) -> int:
    while item == 1 and not (Path(folder) / "flag").exists():
        time.sleep(0.001)
    return item


def test_a_result_does_not_wait_for_the_item_behind_it(tmp_path: Path):
    with ProcessPoolExecutor(1) as executor:
        list(executor.map(deadly.work, range(200)))
        results = executor.map(wait_for_flag_at_1, range(30), [str(tmp_path)] * 30, timeout=PATIENCE)
        assert next(results) == 0
        (tmp_path / "flag").touch()
        assert list(results) == list(range(1, 30))


def append_and_count(items: list[int]) -> int:
    items.append(0)
    return len(items)


class Counts:
    def __init__(self) -> None:
        self.calls = 0

    def count(self, item: int) -> int:
        self.calls += 1
        return self.calls


def test_no_item_sees_what_another_one_did_to_its_arguments(quick: ProcessPoolExecutor):
    shared: list[int] = []
    assert list(quick.map(append_and_count, [shared] * 100)) == [1] * 100
    assert list(quick.map(Counts().count, range(100))) == [1] * 100


KEPT: list[int] = []


def kept(item: int) -> list[int]:
    del item
    return KEPT


def test_no_two_results_are_one_object(quick: ProcessPoolExecutor):
    assert len(set(map(id, list(quick.map(kept, range(50)))))) == 50


def touch_or_wait(item: int, folder: str) -> int:
    (Path(folder) / str(item)).touch()
    while item and not (Path(folder) / "flag").exists():
        time.sleep(0.001)
    return item


def test_what_nobody_asks_for_any_more_is_not_run(folder: Path):
    """As with the standard pool: when the results are dropped, only what workers have goes on."""
    with ProcessPoolExecutor(2) as executor:
        results = executor.map(touch_or_wait, range(5000), [str(folder)] * 5000)
        assert next(results) == 0
        del results
        (folder / "flag").touch()
    assert len(list(folder.iterdir())) <= 2 * (dispatch.MOST_AT_ONCE + 1) + 2


def test_items_that_are_cancelled_say_so(tmp_path: Path):
    executor = ProcessPoolExecutor(1)
    results = executor.map(touch_or_wait, range(1000), [str(tmp_path)] * 1000)
    assert next(results) == 0
    executor.shutdown(wait=False, cancel_futures=True)
    (tmp_path / "flag").touch()
    with pytest.raises(futures.CancelledError):
        list(results)
    executor.shutdown()


def test_a_map_that_takes_too_long_says_so(tmp_path: Path):
    with ProcessPoolExecutor(1) as executor:
        results = executor.map(touch_or_wait, range(1, 10), [str(tmp_path)] * 9, timeout=0.1)
        with pytest.raises(futures.TimeoutError):
            next(results)
        (tmp_path / "flag").touch()


def test_each_item_counts_as_a_task():
    with ProcessPoolExecutor(2) as executor:
        list(executor.map(deadly.work, range(1234)))
        assert executor.stats()["done"] == 1234


@pytest.mark.parametrize(
    ("policy", "options"),
    [(Policy(timeout=60), {}), (Policy(memory_limit=1 << 40), {}), (Policy(), {"max_tasks_per_child": 7})],
)
def test_items_that_somebody_looks_at_one_by_one_travel_alone(policy: Policy, options: dict[str, Any]):
    with ProcessPoolExecutor(2, policy=policy, **options) as executor:
        assert not executor._may_travel_together
        assert list(executor.map(deadly.work, range(100))) == list(range(0, 1000, 10))


def meet(item: int, folder: str) -> int:
    (Path(folder) / str(item)).touch()
    while len(os.listdir(folder)) < 3:
        time.sleep(0.001)
    return os.getpid()


def test_each_worker_gets_one_of_few_items(folder: Path):
    """Three items that wait for each other."""
    with ProcessPoolExecutor(3) as executor:
        assert len(set(executor.map(meet, range(3), [str(folder)] * 3, timeout=PATIENCE))) == 3


# What they stand on


@contextmanager
def shared_memory() -> Iterator[channel.SharedMemory]:
    """No fixture: pytest would hold it until the arenas that are left have been counted."""
    descriptor, memory = channel.new_memory()
    os.close(descriptor)
    yield memory
    memory.close()


def test_records_go_round_the_ring_and_come_out_as_they_went_in():
    with shared_memory() as memory:
        for number, length in enumerate((*range(0, 200, 7), 30_000) * 40):
            payload = bytes([number % 256]) * length
            assert memory.records.write(number << 3 | channel.VALUE, number, payload)
            if number % 3 == 0:
                found, is_sound = memory.records.read()
                assert is_sound and found[-1] == (number << 3, number, payload)
        assert memory.words[channel.WRITTEN] > channel.RING


def test_a_full_ring_says_so_and_loses_nothing():
    with shared_memory() as memory:
        count = 0
        while memory.records.write(count << 3, 0, bytes(1000)):
            count += 1
        found, is_sound = memory.records.read()
        assert is_sound and [tag >> 3 for tag, _, _ in found] == list(range(count))
        assert count > 1000 and memory.records.write(0, 0, bytes(1000))


@pytest.mark.parametrize("words", [[1 << 40, 0, 0], [-7, 0, 0], [16, 6, 0, 99, 0], [8, 6, 0, 0]])
def test_records_that_nobody_wrote_are_not_believed(words: list[int]):
    with shared_memory() as memory:
        assert memory.records.write(1 << 3, 0, b"good")
        begin = channel.RING_AT + memory.words[channel.WRITTEN]
        for number, word in enumerate(words):
            memory.memory[begin + 8 * number : begin + 8 * number + 8] = word.to_bytes(
                8, "little", signed=True
            )
        memory.words[channel.WRITTEN] += 8 * max(len(words), 4)
        found, is_sound = memory.records.read()
        assert found == [(1 << 3, 0, b"good")] and not is_sound


def test_an_item_is_never_begun_by_the_one_and_taken_back_by_the_other():
    """A worker that runs as fast as it can, and a supervisor that takes back as often as it can."""
    with shared_memory() as memory:
        assert sum(_takes_back(memory, number) for number in range(1, 61)), "it was never quick enough"


def _takes_back(memory: channel.SharedMemory, number: int) -> bool:
    items = 4000
    memory.words[channel.ITEM] = 0
    memory.words[channel.RUNNING] = number
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _run_and_tell(memory, number, items, writing)
    os.close(writing)
    first = items
    while first > memory.words[channel.ITEM] + 1 and memory.words[channel.RUNNING] == number:
        middle = (memory.words[channel.ITEM] + 1 + first) // 2
        if not memory.items.take_back(number, middle):
            break
        first = middle
    with os.fdopen(reading, "rb") as pipe:
        ran = int(pipe.read())
    os.waitpid(child, 0)
    memory.records.read()  # else there is no room for the next
    assert ran <= first, f"round {number}: item {first} was taken back, and {ran} were run"
    return first < items


def _run_and_tell(memory: channel.SharedMemory, number: int, items: int, pipe: int) -> None:
    from lastwords import recording

    ran = 0

    def count(item: int) -> None:
        nonlocal ran
        ran += 1

    def never(*_: object) -> None:
        os._exit(1)

    run = recording.Stretches(memory.items, memory.records, never, never, never, (1 << 64) - 1)
    run.run(count, list(range(items)), False, (number, 0, 0))
    os.write(pipe, b"%d" % ran)
    os._exit(0)


def test_a_stretch_is_cut_and_halved_without_losing_an_item():
    section = stretches.Section(as_it_is, range(100, 164), 1000, rows=False)
    (whole,) = section.pieces(0, 64)
    first, rest = whole.cut(20)
    assert (first.size, rest.size) == (20, 44)
    assert (first.args[1], rest.args[1]) == (range(100, 120), range(120, 164))
    middle = rest.middle_behind(3)
    assert middle == 24
    given = rest.give_away(middle)
    assert (rest.size, given.size, given.args[1]) == (24, 20, range(144, 164))
    assert rest.middle_behind(23) is None


def note_and_work(item: int, log: str) -> int:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\n" % item)
    os.close(descriptor)
    return item * 10


def test_workers_that_are_killed_on_the_way_cost_one_item_each(tmp_path: Path):
    """Each result is there once, and only what ran at a death has run again."""
    log = str(tmp_path / "log")
    with ProcessPoolExecutor(2, policy=Policy(retries=100)) as executor:
        results = executor.map(note_and_work, range(20_000), [log] * 20_000)
        found = []
        for number, value in enumerate(results):
            found.append(value)
            if number % 2000 == 1000 and executor._supervisor is not None:
                for pid in executor._supervisor.pids()[:1]:
                    os.kill(pid, signal.SIGKILL)
        deaths = executor.stats()["deaths"]
    assert found == list(range(0, 200_000, 10))
    runs = Counter(map(int, Path(log).read_text().split()))
    assert len(runs) == 20_000
    assert deaths and sum(runs.values()) - 20_000 <= deaths
