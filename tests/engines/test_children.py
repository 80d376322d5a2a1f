"""A parent that asks about its child only when `lastwords run` has put the child's box away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from lastwords import _native, endings
from lastwords.engines.children import account, ending, examine, recall_hang
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


def test_an_agent_that_looks_later_gets_it_too(home: Path):
    kept(home, 4711)
    found = examine(4711, signal.SIGSEGV, None)
    assert found.evidence.item is not None and found.causes[0].id == "null-pointer"


def test_a_box_that_is_put_away_while_it_is_read_is_read_to_the_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    died = subprocess.Popen([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
    assert died.wait() == -signal.SIGSEGV
    read_box = _native.read_box

    def read_box_and_lose_it(path: str) -> bytes:
        try:
            return read_box(path)
        finally:
            for box in Path(os.environ["LASTWORDS"]).glob(f"{died.pid}-*.box"):
                box.unlink()

    monkeypatch.setattr(_native, "read_box", read_box_and_lose_it)
    found = examine(died.pid, signal.SIGSEGV, None)
    assert found.evidence.native_stack is not None, found.evidence.notes


def test_after_a_hang_that_was_ended_it_is_told_nothing(home: Path):
    kept(home, 4711, status=None, hang=Hang(source="probe", seconds=3.0, limit=1.0))
    assert account(4711, -9, "a worker") == ""


def test_of_an_old_death_with_the_same_number_it_is_not_told(home: Path, monkeypatch: pytest.MonkeyPatch):
    kept(home, 4711)
    (place,) = (home / "deaths").iterdir()
    os.utime(place, (1e9, 1e9))
    monkeypatch.setattr("lastwords.postmortem._PATIENCE", 0.05)
    assert account(4711, -11, "a worker") == ""


def test_a_hang_is_recalled_by_what_it_is_about_while_it_lasts(home: Path):
    hang = Hang(source="probe", seconds=3.0, limit=1.0)
    kept(home, 4711, status=None, hang=hang)
    kept(home, 4712)
    found = recall_hang(lambda evidence: evidence.process.pid == 4711)
    assert found is not None and found.evidence.hang == hang
    assert recall_hang(lambda evidence: evidence.process.pid == 4712) is None, "that one has died"


def test_a_hang_of_another_run_is_not_recalled(home: Path):
    kept(home, 4711, status=None, hang=Hang(source="probe", seconds=3.0, limit=1.0))
    for place in (home / "deaths").iterdir():
        os.utime(place, (1e9, 1e9))
    assert recall_hang(lambda _: True) is None


def test_a_kernel_that_cannot_say_how_it_ended_is_not_taken_for_exit_code_0(monkeypatch: pytest.MonkeyPatch):
    """Before Linux 6.15."""

    def cannot_say(_: int) -> None:
        raise NotImplementedError

    monkeypatch.setattr("lastwords.endings._native", SimpleNamespace(exit_status=cannot_say))
    monkeypatch.delenv("LASTWORDS", raising=False)
    status = endings.wait_status(0)
    diagnosis = examine(4711, status, None, keep=False)
    assert status is None and diagnosis.evidence.status is None
    assert ending(diagnosis) == "ended"
