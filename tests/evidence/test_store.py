from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from lastwords.evidence import Evidence, Status
from lastwords.evidence.store import AmbiguousId, NoSuchDeath, Store
from tests.cases import evidence_of

replace = msgspec.structs.replace


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def plant(store: Store, name: str, **changes) -> None:
    place = store.directory / name
    place.mkdir(parents=True)
    (place / "evidence.json").write_bytes(msgspec.json.encode(replace(evidence_of("abort"), **changes)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def test_what_is_put_is_found_again_by_a_prefix(store: Store):
    kept = store.put(evidence_of("null-dereference", death=""))
    assert len(kept.id) == 8
    assert store.get(kept.id) == kept
    assert store.get(kept.id[:4]) == kept


def test_only_the_owner_can_read_it(store: Store, tmp_path: Path):
    box = tmp_path / "1.box"
    box.write_bytes(b"memory")
    box.chmod(0o644)
    kept = store.put(evidence_of("abort", death=""), box)
    place = store.directory / kept.id
    assert not box.exists()
    assert (place / "box").read_bytes() == b"memory"
    assert [mode(path) for path in (store.directory, place)] == [0o700, 0o700]
    assert [mode(place / name) for name in ("box", "evidence.json")] == [0o600, 0o600]
    assert store.box_of(kept.id) == place / "box"
    assert sorted(path.name for path in place.iterdir()) == ["box", "evidence.json"]


def test_the_same_death_has_one_place(store: Store):
    first = store.put(evidence_of("abort", death=""))
    again = store.put(replace(evidence_of("abort", death=""), notes=("seen again",)))
    assert again.id == first.id
    assert [one.notes for one in store.all()] == [("seen again",)]


def test_another_death_that_gets_the_same_id_moves_on(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lastwords.evidence.store._identifier", lambda evidence: "aaaaaaaa")
    first = store.put(evidence_of("abort", death=""))
    second = store.put(replace(evidence_of("wild-pointer", death=""), time=1.0))
    assert first.id == "aaaaaaaa"
    assert second.id != first.id
    assert len(store.all()) == 2


def test_newest_first(store: Store):
    for number in (2, 3, 1):
        store.put(replace(evidence_of("abort"), time=float(number)))
    store.put(Evidence(status=Status(source="test", exit_code=3)))
    assert [one.time for one in store.all()] == [3.0, 2.0, 1.0, None]


def test_prefixes(store: Store):
    plant(store, "aaaa1111")
    plant(store, "aaaa2222", time=1.0)
    with pytest.raises(AmbiguousId) as error:
        store.get("aaaa")
    assert error.value.ids == ("aaaa1111", "aaaa2222")
    assert store.get("aaaa2").id == "aaaa2222"
    for wrong in ("", "aaa", "bbbb", "AAAA1111", "../aaaa", "aaaa11111"):
        with pytest.raises(NoSuchDeath):
            store.get(wrong)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"status": 7}', b"\xff\xfe", b"null"])
def test_a_torn_entry_is_skipped_and_noted(store: Store, content: bytes):
    plant(store, "aaaa1111")
    plant(store, "bbbb2222")
    (store.directory / "bbbb2222" / "evidence.json").write_bytes(content)
    assert [one.id for one in store.all()] == ["aaaa1111"]
    assert "bbbb2222" in store.notes[0]
    with pytest.raises(NoSuchDeath):
        store.get("bbbb2222")


def test_foreign_entries_are_not_ours(store: Store):
    plant(store, "aaaa1111")
    (store.directory / "README").write_text("hello")
    (store.directory / "not-an-id").mkdir()
    (store.directory / "cccc3333").write_text("a file where a directory should be")
    (store.directory / "dddd4444").mkdir()
    assert [one.id for one in store.all()] == ["aaaa1111"]


def test_an_entry_is_called_what_its_directory_is_called(store: Store):
    plant(store, "aaaa1111", id="eeeeeeee")
    assert store.get("aaaa1111").id == "aaaa1111"


def test_an_empty_home_has_no_deaths(store: Store):
    assert store.all() == ()
    assert store.notes == []


def test_fields_of_a_newer_lastwords_are_ignored(store: Store):
    plant(store, "aaaa1111")
    path = store.directory / "aaaa1111" / "evidence.json"
    path.write_bytes(path.read_bytes()[:-1] + b',"from_the_future":{"a":1}}')
    assert store.get("aaaa").status == evidence_of("abort").status


def test_a_home_that_cannot_be_written_raises_for_the_caller(tmp_path: Path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(OSError, match="home"):
        Store(tmp_path / "home").put(evidence_of("abort"))
