"""A storm of deaths fills no disk, and hides no other death."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec
import pytest

from lastwords.evidence import Status, room
from lastwords.evidence.store import Store
from lastwords.record import home
from tests.cases import evidence_of

replace = msgspec.structs.replace


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv(room.VARIABLE, "20")
    return Store(tmp_path / "home")


def put(store: Store, case: str, number: int) -> str:
    return store.put(replace(evidence_of(case, death=""), time=float(number))).id


def test_of_the_most_frequent_kind_the_oldest_go(store: Store):
    rare = [put(store, "null-dereference", number) for number in (1, 2)]
    storm = [put(store, "abort", number) for number in range(10, 60)]
    kept = [one.id for one in store.all()]
    assert 18 <= len(kept) <= 20
    assert kept == [*reversed(storm[-(len(kept) - 2) :]), *reversed(rare)]
    assert store.dropped == 52 - len(kept)


def test_the_same_program_ended_in_two_ways_is_two_kinds(store: Store):
    killed = Status(source="test", signal="SIGKILL")
    other = store.put(replace(evidence_of("abort", death=""), time=1.0, status=killed)).id
    for number in range(10, 40):
        put(store, "abort", number)
    assert other in {one.id for one in store.all()}


def test_boxes_go_with_their_deaths(store: Store, tmp_path: Path):
    for number in range(30):
        box = tmp_path / "1.box"
        box.write_bytes(b"memory")
        store.put(replace(evidence_of("abort", death=""), time=float(number)), box)
    places = {path for path in store.directory.iterdir() if path.is_dir()}
    assert places == {store.directory / one.id for one in store.all()}
    assert all((place / "box").exists() for place in places)


@pytest.mark.parametrize("chosen", ["0", "1000"])
def test_one_may_keep_more_or_all(store: Store, monkeypatch: pytest.MonkeyPatch, chosen: str):
    monkeypatch.setenv(room.VARIABLE, chosen)
    for number in range(30):
        put(store, "abort", number)
    assert (len(store.all()), store.dropped) == (30, 0)


@pytest.mark.parametrize("chosen", ["", "many", "-5", "1e3", "²", "9" * 5000])
def test_a_number_that_is_none_counts_for_nothing(monkeypatch: pytest.MonkeyPatch, chosen: str):
    monkeypatch.setenv(room.VARIABLE, chosen)
    assert room.most() == room.MOST


def test_one_that_is_being_written_stays_and_what_never_was_goes(store: Store):
    young, old = store.directory / "aaaaaaaa", store.directory / "bbbbbbbb"
    for place in (young, old):
        place.mkdir(parents=True)
    long_ago = time.time() - 2 * room.BEING_WRITTEN
    os.utime(old, (long_ago, long_ago))
    for number in range(20):
        put(store, "abort", number)
    for number in range(20, 60):
        status = Status(source="test", exit_code=number)
        store.put(replace(evidence_of("abort", death=""), time=float(number), status=status))
    assert young.exists()
    assert not old.exists()


def test_whoever_comes_second_has_nothing_to_do(store: Store):
    for number in range(20):
        put(store, "abort", number)
    with (store.directory / "dropped").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        put(store, "abort", 21)
        assert len(store.all()) == 21
    put(store, "abort", 22)
    assert len(store.all()) <= 20


@pytest.mark.parametrize("content", [b"", b"many", b"9" * 5000, b"\xff\xfe"])
def test_a_counter_that_somebody_has_written_to_counts_from_nothing(store: Store, content: bytes):
    store.directory.mkdir(parents=True)
    (store.directory / "dropped").write_bytes(content)
    assert store.dropped == 0
    for number in range(21):
        put(store, "abort", number)
    assert store.dropped == 21 - len(store.all()) > 0


def test_a_directory_that_is_not_there_or_not_writable_is_nobodys_end(tmp_path: Path):
    room.make_room(tmp_path / "nowhere")
    assert room.dropped(tmp_path / "nowhere") == 0


class TestRuns:
    @pytest.fixture
    def runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(home, "MOST_RUNS", 5)
        for number in range(10):
            run = tmp_path / "runs" / f"2026010{number}-000000-99999999"
            run.mkdir(parents=True)
            (run / "99999999-1.box").write_bytes(b"memory")
        return tmp_path / "runs"

    def test_the_oldest_that_nobody_asked_for_go(self, tmp_path: Path, runs: Path):
        made = home.new_run_directory(str(tmp_path))
        names = sorted(path.name for path in runs.iterdir())
        assert names == [
            *(f"2026010{number}-000000-99999999" for number in range(6, 10)),
            os.path.basename(made),
        ]

    def test_one_with_a_living_process_stays(self, tmp_path: Path, runs: Path):
        used = runs / "20260100-000000-99999999"
        (used / f"{os.getpid()}-1.box").write_bytes(b"memory")
        home.new_run_directory(str(tmp_path))
        assert len(list(used.iterdir())) == 2
