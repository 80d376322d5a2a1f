"""state_dict and load_state_dict: another process goes on with the very batch that would have come next."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from lastwords.survive import loader_random
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, Held, StatefulStream, Stream, digest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::UserWarning")]

CONFIGURATIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "shuffled": (Augmented(60), {"shuffle": True, "num_workers": 2}),
    "persistent": (Augmented(60), {"shuffle": True, "num_workers": 3, "persistent_workers": True}),
    "iterable": (Stream(60), {"num_workers": 2}),
    "iterable with a state": (StatefulStream(60), {"num_workers": 2}),
    "no workers": (Stream(60), {"num_workers": 0}),
}


class OwnDice(torch.utils.data.Dataset[int]):
    """A map-style dataset with random numbers of its own, of which it gives account."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        return index * 100 + self.dice.randrange(100)

    def state_dict(self) -> dict[str, Any]:
        return {"dice": self.dice.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.dice.setstate(state["dice"])


def through_a_file(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def comparable(batch: Any) -> Any:
    return {key: value for key, value in batch.items() if key != "entropy"}


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("kept", [through_a_file, through_json])
@pytest.mark.parametrize(("dataset", "options"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_it_goes_on_exactly(dataset: Any, options: dict[str, Any], kept: Any):
    def loader() -> DataLoader:
        return DataLoader(dataset, batch_size=5, **options)

    torch.manual_seed(8)
    first = loader()
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    state = kept(first.state_dict())
    own = loader_random.Watch().snapshot
    rest = digest(map(comparable, iterator))

    torch.manual_seed(99)
    second = loader()
    second.load_state_dict(state)
    if options["num_workers"] == 0:
        loader_random.restore(own)  # without workers the samples draw from the trainer's own numbers
    assert digest(map(comparable, second)) == rest
    assert sum(1 for _ in second) == 12  # the epoch after it is a whole one


@pytest.mark.parametrize("batches", [0, 3])
@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize("has_generator", [False, True])
def test_an_epoch_after_the_first_goes_on_exactly(is_persistent: bool, has_generator: bool, batches: int):
    def loader() -> DataLoader:
        own = torch.Generator().manual_seed(3) if has_generator else None
        return DataLoader(
            Augmented(40), 5, shuffle=True, num_workers=2, persistent_workers=is_persistent, generator=own
        )

    torch.manual_seed(8)
    first = loader()
    list(first)
    iterator: Any = iter(first) if batches else None
    for _ in range(batches):
        next(iterator)
    state = through_a_file(first.state_dict())
    rest = digest(iterator or first)

    torch.manual_seed(99)
    second = loader()
    second.load_state_dict(state)
    assert digest(second) == rest


def test_the_trainers_own_random_numbers_go_on_if_they_were_put_back():
    """Each epoch draws a seed from them; a trainer that restores its own has them as they were before that."""
    loader = DataLoader(Augmented(20), batch_size=5, num_workers=2, shuffle=True)
    list(loader)
    state, own = loader.state_dict(), torch.get_rng_state()
    list(loader)
    expected = torch.rand(1)
    torch.set_rng_state(own)
    other = DataLoader(Augmented(20), batch_size=5, num_workers=2, shuffle=True)
    other.load_state_dict(state)
    list(other)
    assert torch.rand(1) == expected


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


def test_what_others_have_overtaken_comes_after_all(tmp_path: Path):
    gate = tmp_path / "gate"

    def loader() -> DataLoader:
        return DataLoader(Held(gate, 40), batch_size=2, num_workers=2, in_order=False)

    first = loader()
    iterator = iter(first)
    given = [next(iterator) for _ in range(4)]
    assert 0 not in torch.cat(given), "its worker waits, and the other one does not"
    second = loader()
    second.load_state_dict(through_a_file(first.state_dict()))
    gate.touch()
    del iterator
    iterator = iter(second)
    given += [next(iterator) for _ in range(3)]
    third = loader()
    third.load_state_dict(through_a_file(second.state_dict()))
    del iterator
    given += list(third)
    assert sorted(torch.cat(given).tolist()) == list(range(40))


def test_streams_that_overtake_each_other_go_on():
    def loader() -> DataLoader:
        return DataLoader(Stream(60), batch_size=5, num_workers=2, in_order=False)

    first = loader()
    iterator = iter(first)
    given = [next(iterator) for _ in range(5)]
    second = loader()
    second.load_state_dict(through_a_file(first.state_dict()))
    given += list(second)
    assert sorted(index for batch in given for index in batch["index"].tolist()) == list(range(60))


class Patient(torch.utils.data.Sampler[int]):
    """Asked for the second item, it waits until the first has arrived: workers may be that much faster than the trainer."""

    def __init__(self) -> None:
        self.loader: Any = None

    def __iter__(self) -> Iterator[int]:
        for number in range(60):
            if number == 10:
                before = self.arrived()
                deadline = time.monotonic() + 60
                while self.arrived() == before and time.monotonic() < deadline:
                    time.sleep(0.001)
            yield number

    def arrived(self) -> int:
        return sum(one.batches for one in self.loader.report().workers.values())


@pytest.mark.parametrize("is_persistent", [False, True])
def test_what_has_arrived_and_was_not_given_is_not_passed(is_persistent: bool):
    """Their random numbers were taken when the first batches had been asked for, and one had come: it was left out."""

    def loader() -> DataLoader:
        sampler = Patient()
        sampler.loader = DataLoader(
            Augmented(60),
            batch_size=5,
            num_workers=1,
            prefetch_factor=4,
            sampler=sampler,
            persistent_workers=is_persistent,
        )
        return sampler.loader  # type: ignore[no-any-return]

    first, second = loader(), loader()
    for _ in range(2 if is_persistent else 1):
        iterator = iter(first)
        state = first.state_dict()
        rest = digest(map(comparable, iterator))
    second.load_state_dict(state)
    assert digest(map(comparable, second)) == rest


def test_without_workers_a_map_style_dataset_goes_on_too():
    loader = DataLoader(OwnDice(1), batch_size=5, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = torch.cat(list(iterator))
    other = DataLoader(OwnDice(2), batch_size=5, shuffle=True)
    other.load_state_dict(state)
    assert torch.equal(torch.cat(list(other)), rest)


def test_a_generator_of_ones_own_goes_on_from_json():
    def loader(seed: int) -> DataLoader:
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(Augmented(60), batch_size=5, num_workers=2, shuffle=True, generator=generator)

    first, second = loader(1), loader(2)
    iterator = iter(first)
    next(iterator)
    second.load_state_dict(through_json(first.state_dict()))
    assert digest(map(comparable, second)) == digest(map(comparable, iterator))


def test_the_states_of_another_random_are_kept_too(monkeypatch: pytest.MonkeyPatch):
    """Where Python keeps its numbers elsewhere than we think, they are taken the official way."""
    monkeypatch.setattr(loader_random, "PYTHON_STATE_AT", loader_random.PYTHON_STATE_AT + 4)
    snapshot = loader_random.Watch().snapshot
    assert len(snapshot[0]) == 3
    assert loader_random.of_saved(through_json(loader_random.as_saved(snapshot))) == snapshot


def test_it_is_small():
    loader = DataLoader(Augmented(1000), batch_size=5, num_workers=2, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    assert file.tell() < 100_000


def test_what_is_refused():
    loader = DataLoader(Augmented(20), batch_size=5, num_workers=2)
    state = DataLoader(Augmented(20), num_workers=1).state_dict()
    with pytest.raises(ValueError, match="num_workers=1, and this one has 2"):
        loader.load_state_dict(state)
    with pytest.raises(ValueError, match="no state of a lastwords DataLoader"):
        loader.load_state_dict({"epoch": 3})
    torn = DataLoader(Augmented(20), num_workers=2).state_dict()
    torn["random"][2] = torn["random"][2][:-1]
    with pytest.raises(ValueError, match="does not hold together"):
        loader.load_state_dict(torn)
