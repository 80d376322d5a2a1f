"""A parent that asks about its child only when `lastwords run` has put the child's box away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from lastwords.engines.children import account
from lastwords.evidence.model import Hang
from lastwords.evidence.store import Store
from lastwords.watch.run_directory import SOCKET
from tests.cases import evidence_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a run that is watched."""
    directory = tmp_path / "runs" / "20261116-051628-1"
    directory.mkdir(parents=True)
    (directory / SOCKET).touch()
    monkeypatch.setenv("LASTWORDS", str(directory))
    return tmp_path


def kept(home: Path, pid: int, **changes) -> None:
    evidence = evidence_of("null-dereference", death="")
    assert evidence.process is not None
    process = msgspec.structs.replace(evidence.process, pid=pid)
    Store(home).put(msgspec.structs.replace(evidence, process=process, time=time.time(), **changes))


def test_it_gets_what_the_watcher_found_out(home: Path):
    kept(home, 4711)
    kept(home, 4712)
    said = account(4711, -11, "a worker")
    assert said.startswith("✗ a worker (pid 4711) died of SIGSEGV") and "null-pointer" in said


def test_after_a_hang_that_was_ended_it_is_told_nothing(home: Path):
    kept(home, 4711, status=None, hang=Hang(source="probe", seconds=3.0, limit=1.0))
    assert account(4711, -9, "a worker") == ""


def test_of_an_old_death_with_the_same_number_it_is_not_told(home: Path, monkeypatch: pytest.MonkeyPatch):
    kept(home, 4711)
    (place,) = (home / "deaths").iterdir()
    os.utime(place, (1e9, 1e9))
    monkeypatch.setattr("lastwords.postmortem._PATIENCE", 0.05)
    assert account(4711, -11, "a worker") == ""
