"""An item that kills costs itself alone, and says so; whatever else happens, the stream is that of a run without it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader

import lastwords
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, Deadly, DeadlyOnce, StatefulStream, Stream, digest, kill, serving

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

KILLS = 50


def load(dataset: Any, action: Any = "raise", **more: Any) -> DataLoader:
    collate = getattr(dataset, "collate", None)
    policy = lastwords.Policy(on_poison=action, **more)
    return DataLoader(dataset, batch_size=8, num_workers=2, collate_fn=collate, policy=policy)


def test_raise_names_the_item_and_the_cause():
    with pytest.raises(
        lastwords.WorkerDied, match="died of SIGSEGV while running: item 13 in batch 1"
    ) as caught:
        list(load(Deadly([13])))
    error = caught.value
    assert error.item == "13"
    assert error.diagnosis is not None and error.diagnosis.best is not None
    assert error.diagnosis.best.id == "null-pointer"
    assert isinstance(error, RuntimeError)


def test_skip_loses_the_item_alone(tmp_path: Path):
    loader = load(Deadly([5, 13, 14]), "skip", quarantine=tmp_path / "poison")
    batches = [batch.tolist() for batch in loader]
    assert batches[0] == [0, 1, 2, 3, 4, 6, 7]
    assert [index for batch in batches for index in batch] == [i for i in range(40) if i not in (5, 13, 14)]
    report = loader.report()
    assert sorted(one.index for one in report.skipped) == [5, 13, 14]
    assert {one.cause for one in report.lost} == {"null-pointer"}
    assert "item 13 skipped: its worker died of SIGSEGV (null-pointer)" in str(report)
    noted = [json.loads(line) for line in (tmp_path / "poison").read_text().splitlines()]
    assert sorted(one["key"] for one in noted) == ["13", "14", "5"]


def test_items_of_one_batch_have_each_their_own_tries(tmp_path: Path):
    """Each kills the first worker that it meets, and passes with the next."""
    loader = load(DeadlyOnce([1, 4, 6], tmp_path))
    assert [index for batch in loader for index in batch.tolist()] == list(range(40))
    assert met(tmp_path) == {"met-1": 1, "met-4": 1, "met-6": 1}
    assert not loader.report().lost


def test_the_item_that_killed_again_is_named_and_not_one_before_it(tmp_path: Path):
    dataset = DeadlyOnce([1, 6], tmp_path, again=[4])
    with pytest.raises(lastwords.WorkerDied, match="item 4 in batch 0, 2 times of 2"):
        next(iter(load(dataset)))
    assert met(tmp_path) == {"met-1": 1, "met-4": 2}


def met(notes: Path) -> dict[str, int]:
    return {note.name: note.stat().st_size for note in notes.glob("met-*")}


def test_substitute_keeps_the_size_of_every_batch_and_later_epochs_know_it():
    loader = load(Deadly([5]), "substitute")
    first, second = ([batch.tolist() for batch in loader] for _ in range(2))
    assert first == second
    assert first[0] == [0, 1, 2, 3, 4, 0, 6, 7]
    assert [len(batch) for batch in first] == [8] * 5
    assert len(loader.report().deaths) == 2


def test_a_callable_chooses():
    loader = load(Deadly([5]), lambda error: 39 if error.item == "5" else None)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3, 4, 39, 6, 7]


def test_a_batch_that_kills_as_a_whole_is_bisected():
    loader = load(Deadly([21], late=True), "skip")
    assert [index for batch in loader for index in batch.tolist()] == [i for i in range(40) if i != 21]
    assert [one.index for one in loader.report().skipped] == [21]


def test_a_batch_of_which_nothing_is_left():
    loader = load(Deadly(range(8, 16)), "skip")
    for _ in range(2):
        assert [batch.tolist()[0] for batch in loader] == [0, 16, 24, 32]


def killed_at_random(dataset: Any, options: dict[str, Any], kills: int) -> tuple[str, int]:
    """A digest of one epoch, and how many workers have died in it: each kill waits until the last one was noticed."""
    torch.manual_seed(17)
    chooser = random.Random(4)
    iterator = iter(DataLoader(dataset, num_workers=2, **options))
    supervisor = iterator._supervisor

    def disturbed() -> Any:
        killed = 0
        for batch in iterator:
            if killed < kills and supervisor.deaths == killed:
                killed += kill(serving(supervisor), chooser)
            yield batch

    return digest(disturbed()), supervisor.deaths


DISTURBED: dict[str, tuple[Any, dict[str, Any]]] = {
    "shuffled": (Augmented(1600), {"batch_size": 4, "shuffle": True}),
    "prefetching": (Augmented(2800), {"batch_size": 4, "prefetch_factor": 6, "drop_last": True}),
    "single items": (Augmented(400), {"batch_size": None}),
    "iterable": (Stream(1600), {"batch_size": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "options"), DISTURBED.values(), ids=DISTURBED.keys())
def test_killed_at_random_the_stream_is_the_same(dataset: Any, options: dict[str, Any]):
    torch.manual_seed(17)
    healthy = digest(TorchDataLoader(dataset, num_workers=2, **options))
    assert killed_at_random(dataset, options, kills=0) == (healthy, 0)
    assert killed_at_random(dataset, options, kills=KILLS) == (healthy, KILLS)


def test_a_persistent_worker_is_replaced_in_a_later_epoch():
    digests = []
    for kills in (False, True):
        torch.manual_seed(5)
        loader = DataLoader(Augmented(40), batch_size=4, num_workers=2, persistent_workers=True)
        first = digest(loader)
        iterator = iter(loader)
        if kills:
            kill(iterator._supervisor.pids(), random.Random(1))
        digests.append(first + digest(iterator))
    assert digests[0] == digests[1]


def test_a_stream_with_a_state_goes_on_exactly_where_it_was():
    loader = DataLoader(StatefulStream(60), batch_size=3, num_workers=2)
    iterator, seen = iter(loader), []
    for number, batch in enumerate(iterator):
        seen += batch["index"].tolist()
        if number in (3, 8):
            kill(iterator._supervisor.pids(), random.Random(number))
    assert sorted(seen) == list(range(60))
