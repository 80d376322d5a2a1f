"""What waits for a place that is away: nothing is lost, nothing grows without bounds, and nobody waits with it."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import msgspec
import pytest

from lastwords.evidence import outbox as module
from lastwords.evidence import places, sending
from lastwords.evidence.gathered import Gathered
from lastwords.evidence.model import TriedAlone
from lastwords.evidence.outbox import Outbox
from lastwords.evidence.places import open_place
from lastwords.evidence.store import Store
from tests.collect.hosts import death


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "home")


def test_what_a_place_refuses_waits_and_goes_when_it_is_back(outbox: Outbox, tmp_path: Path):
    place = tmp_path / "deaths"
    some = [death(pid=pid) for pid in (1, 2, 3)]
    for one in some:
        outbox.add(str(place), one)
    sending.send_all(outbox)
    (box,) = outbox.boxes()
    assert len(box.waiting()) == 3 and "no such directory" in box.refused
    assert not outbox.is_worth_a_try()  # the next death does not try again at once
    place.mkdir()
    sending.send_all(outbox)
    assert outbox.is_empty() and box.refused == ""
    assert Gathered(open_place(str(place))).all() == tuple(reversed(some))


def test_what_a_death_learns_takes_its_place(outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also while it is on its way."""
    one, place = death(), tmp_path / "deaths"
    learnt = msgspec.structs.replace(one, tried_alone=TriedAlone(source="test", outcome="passed", tries=1))
    place.mkdir()
    outbox.add(str(place), one)
    put = places._Directory.put

    def put_and_learn(self: object, name: str, content: bytes) -> None:
        monkeypatch.undo()
        put(self, name, content)  # type: ignore[arg-type]  # it is one
        outbox.add(str(place), learnt)

    monkeypatch.setattr(places._Directory, "put", put_and_learn)
    sending.send_all(outbox)
    assert Gathered(open_place(str(place))).all() == (one,)
    assert not outbox.is_empty()
    sending.send_all(outbox)
    assert Gathered(open_place(str(place))).all() == (learnt,)
    assert outbox.is_empty()


def test_each_place_gets_its_own(outbox: Outbox, tmp_path: Path):
    for name, pid in (("one", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        outbox.add(str(tmp_path / name), death(pid=pid))
    outbox.add(str(tmp_path / "away"), death(pid=3))
    sending.send_all(outbox)
    found = {name: Gathered(open_place(str(tmp_path / name))).all() for name in ("one", "other")}
    assert found == {"one": (death(pid=1),), "other": (death(pid=2),)}
    assert [len(box.waiting()) for box in outbox.boxes() if box.url.endswith("away")] == [1]


def test_the_oldest_go_when_too_many_wait(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_DEATHS", 3)
    for pid in range(5):
        outbox.add("/nowhere", death(pid=pid))
    (box,) = outbox.boxes()
    assert [path.name.split("_")[3] for path in box.waiting()] == ["2", "3", "4"]
    assert box.dropped == 2


def test_the_oldest_go_when_they_take_too_much_room(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    outbox.add("/nowhere", death(pid=0))
    (box,) = outbox.boxes()
    size = box.waiting()[0].stat().st_size
    monkeypatch.setattr(module, "MOST_BYTES", 3 * size)
    for pid in range(1, 6):
        outbox.add("/nowhere", death(pid=pid))
    assert sum(path.stat().st_size for path in box.waiting()) <= 3 * size
    assert box.dropped == 3


def test_only_the_owner_can_read_it(outbox: Outbox):
    outbox.add("s3://key:secret@bucket/deaths", death())
    (box,) = outbox.boxes()
    assert stat.S_IMODE(box.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in box.folder.iterdir()} == {0o600}
    assert "secret" not in sending.words(box)


def test_a_relative_place_stays_where_it_was(outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "deaths").mkdir()
    monkeypatch.chdir(tmp_path)
    outbox.add("deaths", death())
    monkeypatch.chdir("/")
    sending.send_all(outbox)
    assert outbox.is_empty()


def test_one_sender_at_a_time(outbox: Outbox):
    with outbox.sending(patiently=False) as first, outbox.sending(patiently=False) as second:
        assert (first, second) == (True, False)
    with outbox.sending(patiently=False) as again:
        assert again


def test_what_is_stored_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By a process of its own: the caller never looks at the place."""
    place = tmp_path / "deaths"
    place.mkdir()
    monkeypatch.setenv("LASTWORDS_COLLECT", str(place))
    kept = Store(tmp_path / "home").put(death())
    until = time.monotonic() + 60
    while not Outbox(tmp_path / "home").is_empty() and time.monotonic() < until:
        time.sleep(0.02)
    assert Gathered(open_place(str(place))).all() == (kept,)


def test_an_outbox_that_cannot_be_written_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LASTWORDS_COLLECT", str(tmp_path))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "outbox").write_text("in the way")
    kept = Store(tmp_path / "home").put(death())
    assert Store(tmp_path / "home").get(kept.id) == kept
