"""A task that killed is tried again alone, and what became of it is a fact about the first death."""

from __future__ import annotations

import ctypes
import logging
import mmap
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from lastwords import endings
from lastwords.evidence import Evidence
from lastwords.evidence.store import Store
from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.policy import Policy, WorkerDied
from zoo import native

PATIENCE = 60
DEADLY = 5
ran: list[int] = []
"""By this worker."""
times = mmap.mmap(-1, 4096)
"""How often the deadly item has run, in any worker: they are forked."""


def needs_no_past(item: int) -> int:
    """Dies of what an earlier item has left in its worker."""
    if item == DEADLY and ran:
        ctypes.string_at(8)
    ran.append(item)
    return item


def dies_anyway(item: int) -> int:
    if item == DEADLY:
        ctypes.string_at(8)
    return item


def dies_in_two_ways(item: int) -> int:
    if item == DEADLY and ran:
        ctypes.string_at(8)
    if item == DEADLY:
        os.abort()
    ran.append(item)
    return item


def dies_twice(item: int) -> int:
    if item == DEADLY:
        times[0] += 1
        if times[0] <= 2:
            ctypes.string_at(8)
    return item


def is_killed_once(item: int) -> int:
    if item == DEADLY and not times[1]:
        times[1] = 1
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def results(work, workers: int = 1, **policy) -> tuple[list[int | WorkerDied], dict[str, int]]:
    times[:2] = b"\0\0"
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, policy=Policy(**policy)) as executor:
        futures = [executor.submit(work, item) for item in range(8)]
        found = [future.exception(PATIENCE) or future.result() for future in futures]
    return found, executor.stats()  # type: ignore[return-value]  # tasks here raise nothing else


def kept(home: Path) -> list[Evidence]:
    """Oldest first."""
    return list(reversed(Store(home).all()))


def test_it_passes_alone(home: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "lastwords.survive"):
        found, stats = results(needs_no_past)
    assert found == list(range(8))
    assert (stats["deaths"], stats["poisoned"], stats["passed_alone"]) == (1, 0, 1)
    (death,) = kept(home)
    assert death.tried_alone is not None
    assert (death.tried_alone.outcome, death.tried_alone.tries) == (endings.PASSED, 1)
    assert (death.tried_alone.others, death.tried_alone.others_then) == (0, 0)
    (told,) = [one for one in caplog.records if "passed when it ran alone" in one.message]
    assert told.message.startswith("needs_no_past(5) passed when it ran alone: look for what ran before it")
    assert told.lastwords["alone"] == endings.PASSED  # type: ignore[attr-defined]  # by `extra`


def test_it_dies_alone_in_the_same_way(home: Path, tmp_path: Path):
    quarantine = tmp_path / "poison.jsonl"
    found, stats = results(dies_anyway, workers=2, quarantine=quarantine)
    assert stats["passed_alone"] == 0
    error = found[DEADLY]
    assert isinstance(error, WorkerDied) and error.diagnosis is not None
    assert "when it ran alone in a fresh worker, it died the same way" in str(error)
    first, again = kept(home)
    assert error.diagnosis.evidence == again
    for death, is_that_try in ((first, False), (again, True)):
        assert death.tried_alone is not None
        assert (death.tried_alone.outcome, death.tried_alone.is_that_try) == (endings.SAME, is_that_try)
        assert (death.tried_alone.others or 0) <= 1
    assert '"alone": "died the same way"' in quarantine.read_text()


def test_it_dies_alone_of_something_else(home: Path):
    found, _ = results(dies_in_two_ways)
    assert "it died otherwise" in str(found[DEADLY])
    assert [one.tried_alone and one.tried_alone.outcome for one in kept(home)] == [endings.OTHERWISE] * 2


def test_the_last_of_several_tries_counts(home: Path):
    found, stats = results(dies_twice, retries=2)
    assert found == list(range(8)) and stats["passed_alone"] == 1
    first, again = kept(home)
    assert first.tried_alone is not None and again.tried_alone is not None
    assert (first.tried_alone.outcome, first.tried_alone.tries) == (endings.PASSED, 2)
    assert (again.tried_alone.outcome, again.tried_alone.is_that_try) == (endings.SAME, True)


def test_not_tried_is_not_known(home: Path):
    results(dies_anyway, retries=0)
    (death,) = kept(home)
    assert death.tried_alone is None


def test_a_killed_worker_is_no_reason_to_look_for_a_race(home: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "lastwords.survive"):
        found, _ = results(is_killed_once)
    assert found == list(range(8))
    assert not [one for one in caplog.records if "race" in one.message]


def test_a_disk_that_is_full_costs_the_fact_and_not_the_death(home: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> Evidence:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "learn", refuse)
    found, stats = results(needs_no_past)
    assert found == list(range(8)) and stats["passed_alone"] == 1
    (death,) = kept(home)
    assert death.tried_alone is None and death.status is not None and death.status.signal == "SIGSEGV"


shared = mmap.mmap(-1, 4096)


def reads_or_replaces(item: int) -> int:
    zooshared = native.load("zooshared")
    if item == 5:
        zooshared.read_record(shared)
    elif item == 6:
        zooshared.replace_record(shared, True)
    return item


@pytest.mark.skipif(native.missing("zooshared") is not None, reason="no compiler")
def test_it_dies_in_company_alone(home: Path, caplog: pytest.LogCaptureFixture):
    native.load("zooshared").make_record(shared)
    with caplog.at_level(logging.INFO, "lastwords.survive"):
        found, _ = results(reads_or_replaces, workers=2)
    assert found == list(range(8))
    (death,) = kept(home)
    assert death.tried_alone is not None
    assert (death.tried_alone.outcome, death.tried_alone.others) == (endings.PASSED, 1)
    (told,) = [one.message for one in caplog.records if "passed when it ran alone" in one.message]
    assert "look for a race with other workers" in told
