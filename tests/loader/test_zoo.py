"""Every death of the zoo that is an item's own fault, under this loader: the epoch goes on without that item."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from torch.utils.data import Dataset

import lastwords
from lastwords.torch import DataLoader
from zoo import keeper

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

DEADLY = 13
SECONDS = {"hang": 1.0, "fork-deadlock": 1.0}
"""That an item may take, where that is how it dies."""


def is_an_items_fault(death: str) -> bool:
    expected = keeper.expected(death)
    if "place" in expected or "through" in expected or "dataloader" not in keeper.jobs(death):
        return False
    return expected["cause"] not in ("cuda-in-fork", "external-kill")  # the trainer's, and somebody else's


class Animals(Dataset):
    def __init__(self, death: str) -> None:
        self._path = keeper.ZOO / death / "death.py"

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        if index == DEADLY:
            self._death().die(index)
        return index

    def _death(self) -> Any:
        spec = importlib.util.spec_from_file_location("death", self._path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.mark.parametrize("death", [one for one in keeper.animals() if is_an_items_fault(one)])
def test_the_epoch_goes_on(death: str):
    if lack := keeper.missing(death):
        pytest.skip(lack)
    others = [index for index in range(24) if index != DEADLY]
    for action in ("skip", "substitute"):
        policy = lastwords.Policy(on_poison=action, timeout=SECONDS.get(death))
        loader = DataLoader(Animals(death), batch_size=4, num_workers=2, policy=policy)
        batches = [batch.tolist() for batch in loader]
        seen = [index for batch in batches for index in batch]
        assert sorted(set(seen)) == others
        assert len(seen) == (23 if action == "skip" else 24)
        (lost,) = loader.report().lost
        assert lost.index == DEADLY
        assert lost.cause is not None
