"""Batches that are sent without being put together are those that torch puts together, and so are its errors."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, default_collate
from torch.utils.data._utils import collate

from lastwords.survive import loader_collate, loader_gather
from lastwords.torch import DataLoader

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::UserWarning")]

Point = namedtuple("Point", "x y")  # noqa: PYI024  # as users have them


class Flagged(torch.Tensor):
    """A subclass, which torch keeps."""


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.full(shape, number).to(dtype) for number in range(4)]


COMMON: dict[str, list[Any]] = {
    "tensors and numbers": [(row, number) for number, row in enumerate(rows(3, 2))],
    "large tensors": [(row, -number) for number, row in enumerate(rows(3, 64, 64))],
    "scalars": rows(),
    "rows of a table": [*torch.arange(12.0).view(4, 3)],
    "columns of a table": [*torch.arange(12.0).view(3, 4).t()],
    "channels last": [torch.rand(1, 3, 4, 4).to(memory_format=torch.channels_last)[0] for _ in range(4)],
    "expanded": [torch.ones(1).expand(5)] * 4,
    "half": rows(2, dtype=torch.bfloat16),
    "complex numbers": rows(2, dtype=torch.complex64),
    "types that differ": [torch.zeros(2), torch.ones(2, dtype=torch.float64), *rows(2)[:2]],
    "floats": [0.5, 1.5, -0.0, float("inf")],
    "booleans": [True, False, True, True],
    "integers": [[2**63 - 1], [-(2**63)], [0], [1]],
    "words": [("a", b"b", "ü"), ("", b"", "\0"), ("c", b"d", "e"), ("f", b"g", "h")],
    "dictionaries": [{"id": n, "word": str(n), 7: {"x": row}} for n, row in enumerate(rows(2))],
    "one key too many": [{"a": 1}, {"a": 2, "b": 3}, {"a": 3}, {"a": 4}],
    "nested": [[(n, [row, {"deep": (row, n / 2)}])] for n, row in enumerate(rows(2))],
    "the same column twice": [(row, row) for row in rows(4)],
    "nothing": [(), (), (), ()],
}
UNUSUAL: dict[str, list[Any]] = {
    "arrays": [np.full(3, number) for number in range(4)],
    "array scalars": [np.float32(number) for number in range(4)],
    "named tuples": [Point(number, float(number)) for number in range(4)],
    "ordered dictionaries": [OrderedDict(a=number) for number in range(4)],
    "default dictionaries": [defaultdict(int, a=number) for number in range(4)],
    "keys that are tuples": [{(1, 2): number} for number in range(4)],
    "a boolean among integers": [1, True, 0, False],
    "an integer among floats": [0.5, 1, 2, 3],
    "tensors of no size": rows(0, 3),
    "subclasses": [row.as_subclass(Flagged) for row in rows(2)],
    "a subclass among tensors": [*rows(2)[:3], torch.ones(2).as_subclass(Flagged)],
    "parameters": [torch.nn.Parameter(row) for row in rows(2)],
    "too large an integer": [2**63, 1, 2, 3],
    "a float among integers": [1, 2, 3, "four"],
    "shapes that differ": [*rows(2)[:3], torch.zeros(3)],
    "lengths that differ": [(1, 2), (1, 2), (1,), (1, 2)],
    "a missing key": [{"a": 1}, {"a": 2}, {"b": 3}, {"a": 4}],
    "a list among tuples": [(1, 2), (3, 4), [5, 6], (7, 8)],
    "a word among tensors": [*rows(2)[:3], "word"],
    "a tensor among words": ["a", "b", "c", torch.zeros(2)],
    "nothing known": [None, None, None, None],
    "sparse tensors": [torch.eye(2).to_sparse() for _ in range(4)],
    "tensors with gradients": [torch.ones(2, requires_grad=True) for _ in range(4)],
}


class Given(Dataset):
    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return self._samples[index]


def outcomes(kind: Any, samples: list[Any], **options: Any) -> list[Any]:
    """Of each batch of four: what it is made of, or the error's class and last line."""
    iterator, found = iter(kind(Given(samples), batch_size=4, num_workers=1, **options)), []
    while True:
        try:
            found.append(taken_apart(next(iterator)))
        except StopIteration:  # noqa: PERF203  # the epoch goes on after an error
            return found
        except Exception as error:  # noqa: BLE001  # whatever it is, it has to be the same
            found.append((type(error), str(error).splitlines()[-1]))


def taken_apart(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        details = (type(value), value.dtype, value.shape, value.stride(), value.requires_grad)
        return (*details, value.resolve_conj().detach().view(-1).tolist())
    if isinstance(value, dict):
        return type(value), [(key, taken_apart(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [taken_apart(one) for one in value]
    return type(value), repr(value)


@pytest.mark.parametrize("cases", [COMMON, UNUSUAL], ids=["common", "unusual"])
def test_it_is_what_torch_makes(cases: dict[str, list[Any]]):
    samples = [sample for case in cases.values() for sample in case]
    theirs = dict(zip(cases, outcomes(TorchDataLoader, samples), strict=True))
    assert dict(zip(cases, outcomes(DataLoader, samples), strict=True)) == theirs


def test_a_batch_of_many_numbers():
    samples = [(number, number / 2) for number in range(20_000)]
    for kind in (DataLoader, TorchDataLoader):
        (first, second), *rest = kind(Given(samples), batch_size=20_000, num_workers=1)
        assert not rest
        assert first.equal(torch.arange(20_000)) and second.equal(
            torch.arange(20_000) / torch.tensor(2.0).double()
        )


@pytest.fixture
def gatherer(monkeypatch: pytest.MonkeyPatch) -> loader_gather.Gatherer:
    """As in a worker, whose table is its own."""
    monkeypatch.setattr(collate, "default_collate_fn_map", dict(collate.default_collate_fn_map))
    loader_collate.collate_into_shared_memory()
    return loader_gather.Gatherer()


def test_common_samples_are_gathered_and_others_are_not(gatherer: loader_gather.Gatherer):
    assert gatherer.is_for(default_collate)
    assert not gatherer.is_for(collate.default_convert)
    for name in COMMON.keys() - {"large tensors"}:  # which need a worker's memory
        assert len(gatherer.gather(COMMON[name]).buffers) <= 4, name
    for samples in UNUSUAL.values():
        with pytest.raises(loader_gather.Unusual):
            gatherer.gather(samples)


def test_entries_of_others_are_asked(gatherer: loader_gather.Gatherer):
    collate.default_collate_fn_map[float] = collate.collate_float_fn
    with pytest.raises(loader_gather.Unusual):
        gatherer.gather([0.5, 1.5])
    assert not loader_gather.Gatherer().is_for(default_collate)


def collate_reversed(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.tensor(batch[::-1])


def register(_worker: int) -> None:
    collate.default_collate_fn_map[int] = collate_reversed


class Registering(Given):
    """Changes the table in the middle of the epoch."""

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            register(0)
        return index


def test_a_table_that_a_worker_changes_is_obeyed():
    options: dict[str, Any] = {"worker_init_fn": register}
    ours = outcomes(DataLoader, [*range(8)], **options)
    assert ours == outcomes(TorchDataLoader, [*range(8)], **options)
    found = [
        [batch.tolist() for batch in kind(Registering([*range(12)]), batch_size=4, num_workers=1)]
        for kind in (DataLoader, TorchDataLoader)
    ]
    assert found[0] == found[1] == [[0, 1, 2, 3], [7, 6, 5, 4], [11, 10, 9, 8]]
