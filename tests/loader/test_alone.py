"""An item that kills in company and passes alone: the epoch loses nothing, and the report says where to look."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import ClassVar

import pytest
from torch.utils.data import Dataset

import lastwords
from lastwords import endings
from lastwords.evidence.store import Store
from lastwords.torch import DataLoader
from zoo import native

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

DEADLY = 13


class NeedsNoPast(Dataset):
    """Dies of what an earlier batch has left in its worker."""

    fetched: ClassVar[set[int]] = set()

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        if index == DEADLY and min(self.fetched) < DEADLY // 4 * 4:
            ctypes.string_at(8)
        self.fetched.add(index)
        return index


class DiesAnyway(NeedsNoPast):
    def __getitem__(self, index: int) -> int:
        if index == DEADLY:
            ctypes.string_at(8)
        return index


class Company(Dataset):
    """Item 5 reads what item 6, in another worker, is just replacing."""

    def __init__(self) -> None:
        self._zooshared = native.load("zooshared")
        self._shared = mmap.mmap(-1, 4096)
        self._zooshared.make_record(self._shared)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5:
            self._zooshared.read_record(self._shared)
        elif index == 6:
            self._zooshared.replace_record(self._shared, True)
        return index


def outcomes(home: Path) -> list[str | None]:
    return [one.tried_alone.outcome if one.tried_alone else None for one in Store(home).all()]


def test_it_passes_alone(home: Path):
    loader = DataLoader(NeedsNoPast(), batch_size=4, num_workers=1)
    assert [index for batch in loader for index in batch.tolist()] == list(range(24))
    (death,) = loader.report().deaths
    assert death["alone"] == endings.PASSED
    advice = "item 13 in batch 3 passed when it ran alone: look for what ran before it in its worker"
    assert advice in str(loader.report()).splitlines()
    assert outcomes(home) == [endings.PASSED]


def test_it_dies_alone_too(home: Path):
    policy = lastwords.Policy(on_poison="skip")
    loader = DataLoader(DiesAnyway(), batch_size=4, num_workers=1, policy=policy)
    assert sum(len(batch) for batch in loader) == 23
    assert [one["alone"] for one in loader.report().deaths] == [endings.SAME, endings.SAME]
    assert "passed" not in str(loader.report())
    assert outcomes(home) == [endings.SAME, endings.SAME]


@pytest.mark.skipif(native.missing("zooshared") is not None, reason="no compiler")
def test_it_dies_in_company_alone(home: Path):
    loader = DataLoader(Company(), batch_size=1, num_workers=2)
    assert [index for batch in loader for index in batch.tolist()] == list(range(12))
    (death,) = Store(home).all()
    assert death.tried_alone is not None
    assert (death.tried_alone.outcome, death.tried_alone.others) == (endings.PASSED, 1)
    assert death.item is not None and death.item.index == 5
