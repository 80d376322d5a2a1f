"""Notes about tries alone, from the job to the deaths that its watcher has kept."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from lastwords import endings
from lastwords.evidence import Evidence, Process
from lastwords.evidence.alone import Note, about, leave, taken
from lastwords.evidence.model import TriedAlone
from lastwords.evidence.store import NoSuchDeath, Store
from tests.cases import evidence_of

PASSED = TriedAlone(source="test", outcome=endings.PASSED, tries=1)
NOTE = Note(pid=7, time=100.0, found=PASSED)


def death(pid: int, time: float) -> Evidence:
    return Evidence(process=Process(source="test", pid=pid), time=time)


def test_a_note_is_taken_once_and_the_last_counts(tmp_path: Path):
    leave(str(tmp_path), Note(pid=7, time=99.0, found=PASSED))
    leave(str(tmp_path), NOTE)
    assert list(taken(str(tmp_path))) == [NOTE]
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_note_is_passed_over(tmp_path: Path):
    leave(str(tmp_path), NOTE)
    (tmp_path / "8.alone").write_bytes(b"{" * 100_000)
    (tmp_path / "9.alone").write_bytes(msgspec.json.encode({"pid": "nine"}))
    (tmp_path / "10.alone").mkdir()
    os.mkfifo(tmp_path / "11.alone")
    assert list(taken(str(tmp_path))) == [NOTE]
    assert list(taken(str(tmp_path / "nowhere"))) == []


def test_it_is_about_the_death_of_that_process_at_that_time():
    same, other, long_ago = death(7, 101.0), death(8, 100.0), death(7, 10.0)
    assert about(NOTE, [long_ago, other, same]) is same
    assert about(NOTE, [long_ago, other]) is None
    assert about(NOTE, [Evidence()]) is None


def test_a_death_learns_it_and_keeps_the_rest(tmp_path: Path):
    store = Store(tmp_path)
    kept = store.put(evidence_of("null-dereference", death=""))
    assert store.learn(kept.id, PASSED) == msgspec.structs.replace(kept, tried_alone=PASSED)
    assert store.all() == (msgspec.structs.replace(kept, tried_alone=PASSED),)
    with pytest.raises(NoSuchDeath):
        store.learn("ffffffff", PASSED)


def test_a_full_disk_leaves_the_death_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    store = Store(tmp_path)
    kept = store.put(evidence_of("null-dereference", death=""))
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        store.learn(kept.id, PASSED)
    assert store.all() == (kept,)
    assert [path.name for path in (store.directory / kept.id).iterdir()] == ["evidence.json"]
