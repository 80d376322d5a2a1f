"""What arrives is what was sent, whatever it is made of, and stays what it is for as long as it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from lastwords.survive import loader_random, loader_transport
from lastwords.torch import DataLoader

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::UserWarning")]


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Sample:
    name: str
    data: torch.Tensor


def there_and_back(value: Any) -> Any:
    data, buffers = loader_transport.pack(value)
    return loader_transport.unpack(data, [bytearray(one) for one in buffers])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).view(3, 4),
        torch.arange(12.0).view(3, 4).t(),
        torch.randn(1, 3).expand(50, 3),
        torch.randn(1000, 4)[7],
        torch.tensor(3),
        torch.empty(0, 5),
        torch.tensor([True, False]),
        torch.randn(3).bfloat16(),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}",
)
def test_tensors(tensor: torch.Tensor):
    back = there_and_back(tensor)
    assert torch.equal(back, tensor)
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())


def test_a_row_does_not_carry_its_table():
    table = torch.zeros(100_000)
    _, buffers = loader_transport.pack(table[:10])
    assert sum(memoryview(one).nbytes for one in buffers) == 40


def test_unusual_tensors():
    sparse = torch.eye(4).to_sparse()
    assert torch.equal(there_and_back(sparse).to_dense(), torch.eye(4))
    assert torch.equal(there_and_back(sparse.to_sparse_csr()).to_dense(), torch.eye(4))
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    assert [part.shape for part in there_and_back(nested).unbind()] == [(2, 3), (4, 3)]
    assert type(there_and_back(torch.nn.Parameter(torch.ones(2)))) is torch.nn.Parameter
    assert there_and_back(torch.ones(2, requires_grad=True)).requires_grad


def test_structures():
    value = Pair({"a": [np.arange(3), "text", b"bytes"]}, Sample("one", torch.ones(2)))
    back = there_and_back(value)
    assert type(back) is Pair and type(back.right) is Sample
    assert back.left["a"][0].tolist() == [0, 1, 2] and back.left["a"][1:] == ["text", b"bytes"]
    assert back.right.name == "one" and torch.equal(back.right.data, torch.ones(2))


class Images(Dataset):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 128, 128), float(index)), index


def resident() -> int:
    """Bytes of shared memory and of our own, as the kernel counts them."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_batches_may_be_kept_for_ever():
    """200 MB, with room for far less: those that are kept never change."""
    kept = list(DataLoader(Images(), batch_size=4, num_workers=1))
    for number, (images, indices) in enumerate(kept):
        assert indices.tolist() == list(range(4 * number, 4 * number + 4))
        assert torch.equal(images[:, 0, 0, 0], indices.float())
        assert torch.equal(images[:, -1, -1, -1], indices.float())


def test_batches_that_are_not_kept_use_the_same_memory_again():
    loader = DataLoader(Images(), batch_size=16, num_workers=1, persistent_workers=True)
    for _ in loader:
        pass
    before = resident()
    for _ in range(2):
        for _ in loader:
            pass
    assert resident() - before < 16 << 20


class Caching(Dataset):
    """Its collate function keeps every batch that it has made."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((64, 64), float(index))

    def collate(self, items: list[torch.Tensor]) -> Any:
        whole = torch.utils.data.default_collate(items)
        self.kept.append(whole)
        return whole, [batch[0, 0, 0].item() for batch in self.kept]


def test_what_a_worker_keeps_is_not_overwritten():
    dataset = Caching()
    *_, last = DataLoader(dataset, batch_size=4, num_workers=1, collate_fn=dataset.collate)
    assert last[1] == [float(4 * number) for number in range(16)]


def test_random_numbers_are_taken_and_put_back():
    import random

    watch = loader_random.Watch()
    assert watch.changes() is None

    def draw() -> list[Any]:
        return [random.gauss(0, 1), random.random(), *np.random.randn(3), *torch.rand(2).tolist()]

    draw()
    assert all(part is not None for part in watch.changes() or (None,))
    before = watch.snapshot
    first = draw()
    loader_random.restore(before)
    assert draw() == first
    np.random.randn()  # the fourth: kept by numpy from the third, and in no generator's memory
    changes = watch.changes()
    assert changes is not None
