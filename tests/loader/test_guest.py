"""The trainer hears its batches itself while all is well, and leaves everything else to the supervisor's thread."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from lastwords.survive.guest import Chair, Guest
from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, Deadly, digest, serving

pytestmark = [pytest.mark.heavy]
PATIENCE = 60.0
"""Seconds that a slow machine may need for what takes milliseconds."""


class Numbers(Dataset):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> int:
        return index


def is_left(iterator: Any) -> bool:
    """By the supervisor's thread: the trainer takes its turns."""
    return bool(iterator._supervisor._chair._is_left)


def wait_until(is_so: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.001)


def test_whoever_waits_takes_the_turns_and_the_thread_comes_back_when_nobody_does():
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2)
    iterator = iter(loader)
    found: list[int] = []
    visits = 0
    for batch in iterator:
        found += batch.tolist()
        visits += is_left(iterator)
        if len(found) == 2000:
            wait_until(lambda: not is_left(iterator))
    assert found == list(range(4000))
    assert visits > 0


def test_a_thread_may_take_some_batches_and_end():
    """The kernel ends a worker with the thread that started it: a guest must start none."""
    iterator = iter(DataLoader(Augmented(400), batch_size=4, num_workers=2))
    found: list[Any] = []

    def some() -> None:
        for number in range(40):
            found.append(next(iterator))
            if number == 20:
                wait_until(lambda: serving(iterator._supervisor))
                os.kill(serving(iterator._supervisor)[0], signal.SIGKILL)

    thread = threading.Thread(target=some)
    torch.manual_seed(1)
    thread.start()
    thread.join()
    found += list(iterator)
    assert [index for batch in found for index in batch["index"].tolist()] == list(range(400))


def test_deaths_while_the_trainer_waits():
    loader = DataLoader(Deadly([7, 33], length=40), batch_size=4, num_workers=2, policy=skipping())
    assert [index for batch in loader for index in batch.tolist()] == [
        index for index in range(40) if index not in (7, 33)
    ]


def skipping() -> Any:
    import lastwords

    return lastwords.Policy(on_poison="skip")


class Interrupted(Exception):
    pass


def interrupt(_number: int, _frame: Any) -> None:
    raise Interrupted


class Waiting(Dataset):
    """Its second batch waits to be asked for, interrupts whoever does, and waits for the answer."""

    def __init__(self) -> None:
        self.ends = os.pipe()

    def ask_for_the_next(self, iterator: Any) -> None:
        os.write(self.ends[1], b"!")
        next(iterator)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 4:
            os.read(self.ends[0], 1)
            os.kill(os.getppid(), signal.SIGUSR1)
            os.read(self.ends[0], 1)
        return index


def test_an_exception_of_a_signal_handler_interrupts_the_wait_and_the_epoch_goes_on():
    before = signal.signal(signal.SIGUSR1, interrupt)
    dataset = Waiting()
    iterator = iter(DataLoader(dataset, batch_size=4, num_workers=1))
    found: list[int] = next(iterator).tolist()
    try:
        with pytest.raises(Interrupted):
            dataset.ask_for_the_next(iterator)
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.write(dataset.ends[1], b"!")
    found += [index for batch in iterator for index in batch.tolist()]
    for end in dataset.ends:
        os.close(end)
    assert found == list(range(8))


def test_a_guest_who_is_cut_short_before_he_sits_keeps_nobody_from_the_chair():
    """What a signal handler does that raises at the wrong moment: the lock is taken, and nobody has noted by whom."""
    iterator = iter(DataLoader(Numbers(), batch_size=4, num_workers=2))
    found: list[int] = next(iterator).tolist()
    chair = iterator._supervisor._chair
    chair.is_wanted = True
    iterator._supervisor._wake()
    assert chair.visit(PATIENCE)
    found += [index for batch in iterator for index in batch.tolist()]
    assert found == list(range(4000))
    assert not chair.is_mine


def test_the_same_batches_with_and_without_a_guest(monkeypatch: pytest.MonkeyPatch):
    """A trainer that sleeps between two batches never takes turns: that must be the same stream."""
    digests = []
    for is_slow in (False, True):
        torch.manual_seed(5)
        iterator = iter(DataLoader(Augmented(60), batch_size=4, num_workers=2, shuffle=True))
        if is_slow:
            monkeypatch.setattr(iterator._guest, "come", lambda: None)
            monkeypatch.setattr(iterator._guest, "_ask", lambda _timeout: None)
        digests.append(digest(iterator))
    assert digests[0] == digests[1]


def test_a_chair_that_was_free_is_not_wanted_any_more() -> None:
    """Its owner is called back in the middle of a visit, and must stay: the first batch of an epoch waited 100 ms."""
    chair = Chair()
    supervisor: Any = SimpleNamespace(_chair=chair, _is_asleep=False, _notes=[])
    guest = Guest(supervisor)
    guest._ask(1.0)
    assert guest._is_seated and not chair.is_wanted
    guest.leave()
