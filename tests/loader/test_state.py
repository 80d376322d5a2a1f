"""state_dict and load_state_dict: another process goes on with the very batch that would have come next."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from lastwords.survive import loader_random
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, StatefulStream, Stream, digest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::UserWarning")]

CONFIGURATIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "shuffled": (Augmented(60), {"shuffle": True, "num_workers": 2}),
    "persistent": (Augmented(60), {"shuffle": True, "num_workers": 3, "persistent_workers": True}),
    "iterable": (Stream(60), {"num_workers": 2}),
    "iterable with a state": (StatefulStream(60), {"num_workers": 2}),
    "no workers": (Stream(60), {"num_workers": 0}),
}


def through_a_file(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def comparable(batch: Any) -> Any:
    return {key: value for key, value in batch.items() if key != "entropy"}


@pytest.mark.parametrize(("dataset", "options"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_it_goes_on_exactly(dataset: Any, options: dict[str, Any]):
    def loader() -> DataLoader:
        return DataLoader(dataset, batch_size=5, **options)

    torch.manual_seed(8)
    first = loader()
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    state = through_a_file(first.state_dict())
    own = loader_random.Watch().snapshot
    rest = digest(map(comparable, iterator))

    torch.manual_seed(99)
    second = loader()
    second.load_state_dict(state)
    if options["num_workers"] == 0:
        loader_random.restore(own)  # without workers the samples draw from the trainer's own numbers
    assert digest(map(comparable, second)) == rest
    assert sum(1 for _ in second) == 12  # the epoch after it is a whole one


def test_the_end_of_an_epoch_is_the_beginning_of_the_next():
    loader = DataLoader(Augmented(20), batch_size=5, num_workers=2)
    iterator = iter(loader)
    for _ in iterator:
        pass
    other = DataLoader(Augmented(20), batch_size=5, num_workers=2)
    other.load_state_dict(loader.state_dict())
    assert sum(1 for _ in other) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_from_before_the_first_batch(workers: int):
    loader = DataLoader(TensorDataset(torch.arange(20)), batch_size=5, num_workers=workers, shuffle=True)
    iterator = iter(loader)
    state = loader.state_dict()
    whole = digest(iterator)
    torch.manual_seed(4)
    loader.load_state_dict(state)
    assert digest(loader) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_the_end_is_known_when_the_iterator_is_gone(workers: int):
    loader = DataLoader(Augmented(20), batch_size=5, num_workers=workers)
    assert len(list(loader)) == 4
    other = DataLoader(Augmented(20), batch_size=5, num_workers=workers)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_was_left_by_break_is_gone_on_with(workers: int):
    loader = DataLoader(Augmented(40), batch_size=5, num_workers=workers)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    other = DataLoader(Augmented(40), batch_size=5, num_workers=workers)
    other.load_state_dict(loader.state_dict())
    assert [batch["index"][0].item() for batch in other] == [15, 20, 25, 30, 35]
    assert len(list(loader)) == 8  # unless it is told otherwise, a new loop is a new epoch


def test_it_is_small():
    loader = DataLoader(Augmented(1000), batch_size=5, num_workers=2, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    assert file.tell() < 100_000


def test_what_is_refused():
    loader = DataLoader(Augmented(20), batch_size=5, num_workers=2, in_order=False)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(NotImplementedError, match="Use in_order=True"):
        loader.state_dict()
    state = DataLoader(Augmented(20), num_workers=1).state_dict()
    with pytest.raises(ValueError, match="num_workers=1, and this one has 2"):
        loader.load_state_dict(state)
    with pytest.raises(ValueError, match="no state of a lastwords DataLoader"):
        loader.load_state_dict({"epoch": 3})
