"""An item that raises, where the policy says to go on without it: it alone is lost, and it is said."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset

import lastwords
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, digest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:This DataLoader will create")]


class Spoilt(Dataset):
    """Some items raise; those of `once` only the first time."""

    def __init__(self, bad: Iterable[int], *, once: Path | None = None, length: int = 40) -> None:
        self._bad = set(bad)
        self._once = once
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if index in self._bad and self._is_bad_now(index):
            raise ValueError(f"item {index} is no picture")
        return index

    def _is_bad_now(self, index: int) -> bool:
        if self._once is None:
            return True
        try:
            (self._once / f"met-{index}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class SpoiltBatches(Spoilt):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class SpoiltAugmented(Augmented):
    """A bad item has drawn random numbers before it raises."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if index in (5, 21, 22):
            raise OSError(f"item {index} is cut short")
        return sample


class SpoiltAndDeadly(Spoilt):
    def __getitem__(self, index: int) -> int:
        if index == 6:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(index)


def load(dataset: Any, action: Any = "skip", batch_size: int | None = 8, **more: Any) -> DataLoader:
    policy = lastwords.Policy(on_poison=action, **more)
    return DataLoader(dataset, batch_size=batch_size, num_workers=2, policy=policy)


def items(loader: Any) -> list[int]:
    return [index for batch in loader for index in batch.tolist()]


@pytest.mark.parametrize("kind", [Spoilt, SpoiltBatches])
def test_skip_loses_the_item_alone_and_says_so(kind: type[Spoilt], tmp_path: Path):
    loader = load(kind([5, 13, 14]), quarantine=tmp_path / "bad")
    assert items(loader) == [index for index in range(40) if index not in (5, 13, 14)]
    report = loader.report()
    assert sorted(one.index for one in report.skipped) == [5, 13, 14]
    assert "item 13 skipped: it raised ValueError: item 13 is no picture (python-exception)" in str(report)
    assert not report.deaths
    noted = {one["key"]: one for one in map(json.loads, (tmp_path / "bad").read_text().splitlines())}
    assert sorted(noted) == ["13", "14", "5"]
    assert noted["13"]["cause"] == "python-exception" and noted["13"]["attempts"] == 2


@pytest.mark.parametrize("kind", [Spoilt, SpoiltBatches])
def test_substitute_keeps_the_size_of_every_batch(kind: type[Spoilt]):
    loader = load(kind([5]), "substitute")
    batches = [batch.tolist() for batch in loader]
    assert batches[0] == [0, 1, 2, 3, 4, 0, 6, 7]
    assert [len(batch) for batch in batches] == [8] * 5
    assert [(one.index, one.substitute) for one in loader.report().substituted] == [(5, 0)]


def test_a_batch_of_which_nothing_is_left():
    bad = range(8, 16)
    assert items(load(Spoilt(bad))) == [*range(8), *range(16, 40)]
    replaced = [batch.tolist() for batch in load(Spoilt(bad), "substitute")]
    assert replaced[1] == [16] * 8


def test_samples_that_come_alone():
    assert list(load(Spoilt([5]), batch_size=None)) == [*range(5), *range(6, 40)]
    assert list(load(Spoilt([5]), "substitute", batch_size=None))[4:7] == [4, 6, 6]


def test_the_rest_has_the_random_numbers_of_a_run_without_it():
    """That of torch's own loader, which was never asked for these items."""
    good = [[at for at in range(first, first + 8) if at not in (5, 21, 22)] for first in range(0, 120, 8)]
    torch.manual_seed(3)
    expected = digest(TorchDataLoader(Augmented(), batch_sampler=good, num_workers=2))
    torch.manual_seed(3)
    assert digest(load(SpoiltAugmented())) == expected


def test_one_that_raises_once_is_not_lost(tmp_path: Path):
    loader = load(Spoilt([5, 6, 30], once=tmp_path))
    assert items(loader) == list(range(40))
    assert not loader.report().lost


def test_it_is_tried_again_in_the_next_epoch_and_told_once(tmp_path: Path):
    loader = load(Spoilt([5]), quarantine=tmp_path / "bad")
    assert items(loader) == items(loader) == [*range(5), *range(6, 40)]
    assert len(loader.report().lost) == len((tmp_path / "bad").read_text().splitlines()) == 1


def test_a_death_in_the_same_batch_is_blamed_on_the_right_item():
    loader = load(SpoiltAndDeadly([2, 3]))
    assert items(loader) == [0, 1, 4, 5, *range(7, 40)]
    assert {one.index: one.cause == "python-exception" for one in loader.report().lost} == {
        2: True,
        3: True,
        6: False,
    }


def test_code_that_is_wrong_for_all_items_is_not_hidden():
    with pytest.raises(ValueError, match="is no picture"):
        items(load(Spoilt(range(400), length=400)))


def test_half_of_the_items_may_be_bad():
    assert items(load(Spoilt(range(1, 400, 2), length=400))) == list(range(0, 400, 2))


def refuse(_samples: list[Any]) -> Any:
    raise KeyError("label")


def test_a_collate_function_that_raises_is_no_item_s_fault():
    policy = lastwords.Policy(on_poison="skip")
    loader = DataLoader(Spoilt([]), batch_size=8, num_workers=2, collate_fn=refuse, policy=policy)
    with pytest.raises(KeyError, match="label"):
        list(loader)
    assert not loader.report().lost


@pytest.mark.parametrize("action", ["raise", lambda _error: 0], ids=["raise", "function"])
def test_else_it_is_raised_as_by_torch(action: Any):
    with pytest.raises(ValueError, match="item 5 is no picture"):
        items(load(Spoilt([5]), action))
