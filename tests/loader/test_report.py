"""What a loader says of itself, and a leak that is cut off between two batches without a seam."""

from __future__ import annotations

import copy
import time
import warnings
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader

import lastwords
from lastwords.survive.loader_report import LostItem, Record
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, Stream, digest

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:This DataLoader will create")]


def test_words():
    record = Record()
    for seat in (0, 1):
        record.arrived(seat, ["a", "b"], (30_000_000, 20_000_000 + seat, 1))
    record.report.batches, record.report.waited, record.report.total = 2, 0.03, 0.04
    record.lose(LostItem("b", 0, "null-pointer", "died of SIGSEGV"))
    record.lose(LostItem("c", 1, None, "died of SIGABRT", "d"))
    assert str(record.finished()).splitlines() == [
        "2 batches from 2 workers, 0 deaths",
        "the trainer waited 75% of the time: 6 workers would do, with a core each",
        "item b skipped: its worker died of SIGSEGV (null-pointer)",
        "item c replaced by item d: its worker died of SIGABRT (cause not known)",
        "slowest items: b (20.0 ms), b (20.0 ms)",
    ]
    assert record.finished().as_dict()["workers_needed"] == 6


def test_only_some_of_many_that_passed_alone_are_named():
    record = Record()
    record.report.deaths = [{"advice": f"item {index} passed"} for index in range(5)] + [{"advice": None}]
    assert str(record.finished()).splitlines()[1:] == [
        "item 0 passed",
        "item 1 passed",
        "item 2 passed",
        "and 2 more that passed alone",
    ]


def test_a_trainer_that_never_waits_needs_no_more_workers():
    record = Record()
    record.arrived(0, [1], (1_000, 10, 0))
    record.report.waited, record.report.total = 0.001, 1.0
    assert record.finished().workers_needed is None


def test_it_counts_and_times_what_happened():
    loader = DataLoader(Augmented(40), batch_size=4, num_workers=2)
    for _ in loader:
        pass
    report = loader.report()
    assert report.batches == 10
    assert {seat: one.batches for seat, one in report.workers.items()} == {0: 5, 1: 5}
    assert 0 < report.waiting_share <= 1
    assert len(report.slowest) == 10
    assert report.slowest[0][0] >= report.slowest[-1][0] > 0
    assert not report.deaths and not report.lost


@pytest.mark.parametrize("workers", [0, 2])
def test_progress_is_shown_where_it_is_asked_for(workers: int):
    heard: list[dict[str, int]] = []
    loader = DataLoader(Augmented(40), batch_size=4, num_workers=workers, progress=heard.append)
    for epoch in (1, 2):
        for _ in loader:
            pass
        assert heard[-1] == {"done": 10, "total": 10, "retried": 0, "poisoned": 0}
        assert sum(counts == heard[-1] for counts in heard) >= epoch


@pytest.mark.parametrize("kind", ["rich", "tqdm"])
def test_a_bar_names_what_it_counts(
    kind: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    if kind == "tqdm":
        # Its own thread, which it starts once and never ends.
        monkeypatch.setattr(pytest.importorskip("tqdm").tqdm, "monitor_interval", 0)
    loader = DataLoader(Augmented(8), batch_size=4, num_workers=1, progress=kind)
    iterator = iter(loader)
    next(iterator)
    copy.deepcopy(loader)  # a bar is no part of a loader
    for _ in iterator:
        pass
    shown = "".join(capfd.readouterr())
    assert "batch" in shown
    assert "0 retried, 0 poisoned" in shown


def test_a_bar_does_not_ask_an_iterable_dataset_for_its_length_in_the_users_name():
    class Modest(Stream):
        def __len__(self) -> int:
            return 4

    loader = DataLoader(Modest(90), batch_size=5, num_workers=0, progress=lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in loader) == 18


class Leaking(Augmented):
    kept: ClassVar[list[Any]] = []

    def __getitem__(self, index: int) -> Any:
        self.kept.append(torch.ones(1 << 17))  # 512 KiB
        time.sleep(0.015)  # memory is weighed four times a second
        return super().__getitem__(index)


def test_a_leak_is_cut_off_between_batches_and_nobody_sees_it():
    digests, iterator = [], None
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (TorchDataLoader, {}),
        (DataLoader, {"policy": lastwords.Policy(recycle=16 << 20)}),
    ]
    for kind, more in kinds:
        torch.manual_seed(6)
        iterator = iter(kind(Leaking(320), batch_size=4, num_workers=2, shuffle=True, **more))
        digests.append(digest(iterator))
    assert digests[0] == digests[1]
    assert iterator is not None and iterator._supervisor.recycled > 0
