"""Chunks of a map: the item that kills is lost, and nobody else runs twice once its result is published."""

from __future__ import annotations

import os
import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy, WorkerDied
from tests.survive import deadly

INSTEAD = -1
LENIENT = Policy(on_poison="substitute", substitute=INSTEAD)


def die_at_17(item: int) -> int:
    if item == 17:
        os._exit(3)
    return item * 10


@pytest.mark.parametrize("size", [2, 5, 18, 64])
def test_the_item_that_kills_is_named_and_all_others_are_delivered(size: int):
    with ProcessPoolExecutor(2, policy=LENIENT) as executor:
        found = list(executor.map(die_at_17, range(64), chunksize=size))
        stats = executor.stats()
    assert found == [item * 10 if item != 17 else INSTEAD for item in range(64)]
    assert stats["deaths"] == 2 and stats["poisoned"] == 1


def test_results_before_the_one_that_kills_are_handed_out_first():
    with ProcessPoolExecutor(2) as executor:
        results = executor.map(die_at_17, range(64), chunksize=64)
        assert [next(results) for _ in range(17)] == [item * 10 for item in range(17)]
        with pytest.raises(WorkerDied, match=r"exit code 3 while running: die_at_17\(17\)") as died:
            next(results)
    assert died.value.item == "die_at_17(17)" and died.value.attempts == 2


def test_the_black_box_names_the_item_that_kills_and_not_the_chunk():
    """Hundreds of short ones went before it in the same moment."""
    with ProcessPoolExecutor(1, policy=Policy(retries=0)) as executor:
        results = executor.map(die_at_17, range(-400, 64), chunksize=464)
        assert [next(results) for _ in range(417)] == [item * 10 for item in range(-400, 17)]
        with pytest.raises(WorkerDied, match=r"die_at_17\(17\)") as died:
            next(results)
    diagnosis = died.value.diagnosis
    assert diagnosis is not None and diagnosis.evidence.item is not None
    assert diagnosis.evidence.item.index == 417


def add_and_die_at_17(one: int, other: int) -> int:
    return die_at_17(one) + other


def test_rows_of_several_arguments_travel_in_chunks_too():
    with ProcessPoolExecutor(2, policy=LENIENT) as executor:
        found = list(executor.map(add_and_die_at_17, range(40), range(40), chunksize=16))
    assert found == [item * 11 if item != 17 else INSTEAD for item in range(40)]


def note_and_die_at_7(item: int, folder: str) -> int:
    with open(f"{folder}/{item}", "a") as file:
        file.write("x")
    time.sleep(0.002)
    if item == 7:
        os._exit(0)
    return item


def test_finished_neighbours_do_not_run_again(tmp_path: Path):
    with ProcessPoolExecutor(1, policy=LENIENT) as executor:
        list(executor.map(note_and_die_at_7, range(20), [str(tmp_path)] * 20, chunksize=20))
    runs = Counter({item: len((tmp_path / str(item)).read_text()) for item in range(20)})
    assert runs.pop(7) == 2
    assert set(runs.values()) == {1}


def test_an_item_that_kills_while_the_chunk_is_loaded_is_found_by_halving():
    items: list[Any] = list(range(16))
    items[11] = deadly.DiesWhenLoaded("exit 0")
    with ProcessPoolExecutor(2, policy=LENIENT) as executor:
        assert list(executor.map(deadly.take, items, chunksize=16)) == [*range(11), INSTEAD, *range(12, 16)]
        stats = executor.stats()
    assert stats["poisoned"] == 1 and stats["deaths"] <= 6


def give(item: int) -> object:
    return deadly.DiesWhenPickled("sigkill") if item == 5 else item


def test_an_item_whose_result_kills_while_it_is_sent_is_found_by_halving():
    with ProcessPoolExecutor(2, policy=LENIENT) as executor:
        assert list(executor.map(give, range(16), chunksize=16)) == [*range(5), INSTEAD, *range(6, 16)]
        assert executor.stats()["poisoned"] == 1


def refuse_nine(item: int) -> object:
    if item == 9:
        raise KeyError("nine")
    return (lambda: 0) if item == 20 else item


def test_exceptions_and_results_that_cannot_travel_fail_from_their_own_item_on():
    with ProcessPoolExecutor(2) as executor:
        results = executor.map(refuse_nine, range(12), chunksize=12)
        assert [next(results) for _ in range(9)] == list(range(9))
        with pytest.raises(KeyError, match="nine"):
            next(results)
        results = executor.map(refuse_nine, range(18, 30), chunksize=12)
        assert [next(results), next(results)] == [18, 19]
        with pytest.raises(pickle.PicklingError, match="lambda"):
            next(results)


class Adds:
    """A callable without a name."""

    def __call__(self, item: object) -> object:
        return item


def test_work_without_a_name_is_halved_too():
    items: list[Any] = [1, 2, deadly.DiesWhenLoaded("exit 0"), 4]
    with ProcessPoolExecutor(1, policy=LENIENT) as executor:
        assert list(executor.map(Adds(), items, chunksize=4)) == [1, 2, INSTEAD, 4]
