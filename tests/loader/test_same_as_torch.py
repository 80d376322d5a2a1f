"""Without a death the loader is torch's own, bit for bit: order, content, worker ids, random numbers, errors."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, TensorDataset, get_worker_info
from torch.utils.data import DataLoader as TorchDataLoader

import lastwords
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, Stream, digest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffled": {"shuffle": True, "drop_last": True, "batch_size": 7},
    "persistent": {"shuffle": True, "persistent_workers": True, "prefetch_factor": 3},
    "own generator": {"shuffle": True, "generator": 5},
    "replacement": {"sampler": "replacement"},
    "batch sampler": {"batch_sampler": "batches", "batch_size": 1},
    "single items": {"batch_size": None},
}


def make(kind: Any, dataset: Any, options: dict[str, Any], **more: Any) -> Any:
    options = {"batch_size": 8, **options}
    if "generator" in options:
        options["generator"] = torch.Generator().manual_seed(options["generator"])
    if options.get("sampler") == "replacement":
        options["sampler"] = RandomSampler(dataset, replacement=True, num_samples=70)
    if "batch_sampler" in options:
        options["batch_sampler"] = BatchSampler(SequentialSampler(dataset), 9, drop_last=False)
    return kind(dataset, num_workers=2, **options, **more)


def stream(kind: Any, dataset: Any, options: dict[str, Any], epochs: int = 2) -> str:
    torch.manual_seed(11)
    loader = make(kind, dataset, options)
    whole = digest(batch for _ in range(epochs) for batch in loader)
    return whole + str(torch.rand(1).item())  # the trainer's own random numbers go on as they do with torch


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_map_style_datasets(options: dict[str, Any]):
    assert stream(DataLoader, Augmented(), options) == stream(TorchDataLoader, Augmented(), options)


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": None}, {"persistent_workers": True, "drop_last": True}]
)
def test_iterable_datasets(options: dict[str, Any]):
    assert stream(DataLoader, Stream(), options) == stream(TorchDataLoader, Stream(), options)


def test_without_workers():
    configurations: list[dict[str, Any]] = [{"shuffle": True}, {}]
    for options in configurations:
        digests = []
        for kind in (DataLoader, TorchDataLoader):
            torch.manual_seed(3), random.seed(3), np.random.seed(3)
            digests.append(digest(kind(Augmented(), batch_size=8, **options)))
        assert digests[0] == digests[1]


class Batched(Augmented):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        return [(index, torch.randn(2)) for index in indices]


def test_datasets_that_fetch_batches():
    assert stream(DataLoader, Batched(), {}) == stream(TorchDataLoader, Batched(), {})


def offset(worker: int) -> None:
    info = get_worker_info()
    assert info is not None and info.id == worker
    info.dataset.offset = 100 * (worker + 1)
    torch.manual_seed(worker)


class Offset(Augmented):
    offset = 0

    def __getitem__(self, index: int) -> Any:
        return index + self.offset, torch.rand(1)


def test_worker_init_fn():
    options = {"worker_init_fn": offset}
    assert stream(DataLoader, Offset(), options) == stream(TorchDataLoader, Offset(), options)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_start_methods(method: str):
    options = {"multiprocessing_context": method, "shuffle": True}
    ours = stream(DataLoader, Augmented(20), options, epochs=1)
    assert ours == stream(TorchDataLoader, Augmented(20), options, epochs=1)


class Faulty(Augmented):
    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise KeyError("no such picture")
        return index


def test_an_exception_is_raised_where_torch_raises_it_and_the_rest_follows():
    seen = {}
    for kind in (DataLoader, TorchDataLoader):
        iterator, batches, errors = iter(make(kind, Faulty(40), {"batch_size": 4})), [], []
        while True:
            try:
                batches.append(next(iterator).tolist())
            except StopIteration:  # noqa: PERF203  # the epoch goes on after an error
                break
            except KeyError as error:
                errors.append(str(error).splitlines()[0])
        seen[kind] = batches, errors
    assert seen[DataLoader] == seen[TorchDataLoader]
    assert len(seen[DataLoader][0]) == 9


def refuse(worker: int) -> None:
    raise ZeroDivisionError(f"worker {worker} will not")


def test_an_exception_of_worker_init_fn_is_the_first_batchs():
    with pytest.raises(ZeroDivisionError, match="worker 0 will not"):
        next(iter(make(DataLoader, Augmented(), {"worker_init_fn": refuse})))


class Sleepy(Augmented):
    def __getitem__(self, index: int) -> Any:
        import time

        time.sleep(60)


def test_timeout():
    iterator = iter(make(DataLoader, Sleepy(), {"timeout": 0.3}))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.3 seconds"):
        next(iterator)
    for pid in iterator._supervisor.pids():
        import os

        os.kill(pid, 9)


def test_batches_in_any_order():
    loader = make(DataLoader, Augmented(), {"in_order": False})
    seen = sorted(index for batch in loader for index in batch["index"].tolist())
    assert seen == list(range(120))


def test_it_is_a_torch_loader():
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=2, num_workers=1)
    assert isinstance(loader, TorchDataLoader)
    assert len(loader) == 5
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 3
    with pytest.raises(ValueError, match="num_workers option should be non-negative"):
        DataLoader([1], num_workers=-1)


def test_a_loader_can_be_copied_and_pickled_after_an_epoch():
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=2, policy=lastwords.Policy(retries=3))
    assert len(list(loader)) == 3
    for copied in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert copied.policy.retries == 3
        assert len(list(copied)) == 3


def end_in_the_middle(kind: Any) -> None:
    iterator = iter(make(kind, Augmented(), {}))
    next(iterator)
    sys.exit(7)  # the traceback holds the iterator


def test_a_process_of_multiprocessing_that_ends_in_the_middle_does_not_wait_for_ever():
    rank = multiprocessing.get_context("fork").Process(target=end_in_the_middle, args=(DataLoader,))
    rank.start()
    rank.join(60)
    assert rank.exitcode == 7


def test_leaving_an_epoch_early_and_beginning_again():
    loader = make(DataLoader, Augmented(), {"persistent_workers": True})
    theirs = make(TorchDataLoader, Augmented(), {"persistent_workers": True})
    digests = []
    for one in (loader, theirs):
        torch.manual_seed(2)
        iterator = iter(one)
        next(iterator)
        digests.append(digest(one))
    assert digests[0] == digests[1]
