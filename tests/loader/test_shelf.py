"""Places that all workers of a loader share: who has them, and that they come back."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from lastwords.survive.loader_shelf import LARGE, SPARE, Shelf, new_shelf
from lastwords.torch import DataLoader

pytestmark = pytest.mark.heavy

WORKERS, BATCH = 2, 4
ROW = LARGE // BATCH // 4
"""Numbers: a batch is just large enough."""


class Rows(Dataset[Any]):
    """`deadly`: indices that kill their worker when a file with their name is not there yet."""

    def __init__(self, length: int, deadly: range = range(0), notes: Path = Path()) -> None:
        self._length, self._deadly, self._notes = length, deadly, notes

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        note = self._notes / str(index)
        if index in self._deadly and not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(ROW), index


def shelf_of(iterator: Any) -> Shelf:
    shelf = iterator._feed.plan.shelf
    assert isinstance(shelf, Shelf)
    return shelf


def free_places(shelf: Shelf) -> list[int]:
    """By claiming them, and giving them back."""
    free = [place for place in range(shelf._places) if shelf._claims.claim(place)]
    for place in free:
        shelf._free(place)
    return free


def make_shelf(usual: int = 2) -> Shelf:
    shelf = new_shelf(usual - 1)
    assert shelf is not None
    return shelf


def test_a_place_is_used_again_when_its_batch_is_gone() -> None:
    shelf = make_shelf()
    assert [shelf.take(LARGE), shelf.take(LARGE)] == [0, 1]
    shelf.keep([(0, LARGE), (1, LARGE)])
    shelf.note([(0, LARGE), (1, LARGE)])
    kept, let_go = shelf.lend(0, LARGE), shelf.lend(1, LARGE)
    kept[:4] = b"kept"
    del let_go
    assert shelf.take(LARGE) == 1
    assert kept[:4] == b"kept"


def test_what_a_worker_takes_and_does_not_send_comes_back() -> None:
    shelf = make_shelf()
    shelf.take(LARGE)
    second = shelf.take(LARGE)
    shelf.keep([b"small", (second, LARGE)])
    assert free_places(shelf) == [place for place in range(2 + SPARE) if place != second]


def test_the_places_of_a_worker_that_died_come_back_and_its_finished_batches_stay() -> None:
    shelf = make_shelf(4)
    shelf.sit_down(1)
    finished = shelf.take(LARGE)
    shelf.take(LARGE)
    shelf.sit_down(0)
    others = shelf.take(LARGE)
    shelf.note([(finished, LARGE)])
    shelf.reclaim(1)
    assert set(range(4 + SPARE)) - set(free_places(shelf)) == {finished, others}


def test_only_columns_of_about_that_size_lie_there() -> None:
    shelf = make_shelf()
    assert shelf.take(LARGE - 1) is None  # and it does not decide for those that come later
    assert shelf.take(4 * LARGE) == 0
    assert shelf.take(LARGE) is None
    assert shelf.take(9 * LARGE) is None
    assert shelf.take(8 * LARGE) == 1


def test_when_all_are_taken_there_is_none() -> None:
    shelf = make_shelf()
    assert [shelf.take(LARGE) for _ in range(2 + SPARE)] == list(range(2 + SPARE))
    assert shelf.take(LARGE) is None


@pytest.mark.parametrize("place", [(-1, LARGE), (2 + SPARE, LARGE), (0, 0), (0, 1 << 40)])
def test_nonsense_from_a_worker_is_refused(place: tuple[int, int]) -> None:
    shelf = make_shelf()
    shelf.take(LARGE)
    with pytest.raises(ValueError, match="written over its own memory"):
        shelf.lend(*place)


def test_a_fork_that_lets_go_of_a_batch_takes_nothing_from_the_trainer() -> None:
    shelf = make_shelf()
    place = shelf.take(LARGE)
    assert place is not None
    shelf.note([(place, LARGE)])
    lent = shelf.lend(place, LARGE)
    child = os.fork()
    if child == 0:
        del lent
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert place not in free_places(shelf)
    assert len(lent) == LARGE


def test_pages_are_given_back_at_the_end_but_not_those_of_a_batch_that_is_kept() -> None:
    shelf = make_shelf()
    descriptor = os.dup(shelf._descriptor)
    places = [shelf.take(LARGE) for _ in range(2)]
    shelf.note([(place, LARGE) for place in places])
    kept, let_go = (shelf.lend(place or 0, LARGE) for place in places)
    for one in (kept, let_go):
        one[:] = b"x" * LARGE
    del one, let_go
    shelf.close()
    assert LARGE <= 512 * os.fstat(descriptor).st_blocks < 2 * LARGE
    assert kept[:] == b"x" * LARGE
    del kept
    assert 512 * os.fstat(descriptor).st_blocks < LARGE
    os.close(descriptor)


def test_kept_batches_are_those_of_torch_and_never_change() -> None:
    """More of them than there are places: the rest come from the workers' own memories."""
    rows = Rows(96)
    torch.manual_seed(0)
    theirs = list(TorchLoader(rows, BATCH, num_workers=WORKERS))
    torch.manual_seed(0)
    iterator = iter(DataLoader(rows, BATCH, num_workers=WORKERS))
    ours = list(iterator)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine[0], other[0])
        assert torch.equal(mine[1], other[1])
    assert len(shelf_of(iterator)._loans) == 2 * WORKERS + 1 + SPARE


def test_a_loop_that_keeps_nothing_leaves_all_places_free() -> None:
    iterator = iter(DataLoader(Rows(96), BATCH, num_workers=WORKERS, persistent_workers=True))
    for batch in iterator:
        del batch
    assert free_places(shelf_of(iterator)) == list(range(2 * WORKERS + 1 + SPARE))


def test_deaths_lose_no_place_and_change_no_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = [batch[0].double().sum() for batch in TorchLoader(Rows(160), BATCH, num_workers=WORKERS)]
    torch.manual_seed(0)
    notes = tmp_path / "killed"
    notes.mkdir()
    rows = Rows(160, range(5, 160, 10), notes)
    iterator = iter(DataLoader(rows, BATCH, num_workers=WORKERS, persistent_workers=True))
    assert [batch[0].double().sum() for batch in iterator] == theirs
    assert len(list(notes.iterdir())) == 16
    assert free_places(shelf_of(iterator)) == list(range(2 * WORKERS + 1 + SPARE))


@pytest.mark.slow
def test_workers_that_were_not_forked_have_the_same_places() -> None:
    loader = DataLoader(Rows(16), BATCH, num_workers=1, multiprocessing_context="spawn")
    iterator = iter(loader)
    batches = [next(iterator)[0] for _ in range(3)]
    assert len(shelf_of(iterator)._loans) == len(batches)
    assert all(batch.shape == (BATCH, ROW) for batch in batches)
