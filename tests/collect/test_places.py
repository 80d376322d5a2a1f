"""A place for the deaths of many hosts: names, whole files, and what others may have put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lastwords.evidence import Evidence, places
from lastwords.evidence.gathered import Gathered
from lastwords.evidence.places import PlaceAway, name_of, open_place
from lastwords.evidence.store import AmbiguousId, NoSuchDeath
from lastwords.evidence.travel import packed
from tests.collect.hosts import death


@pytest.fixture(params=["directory", "file://", "memory://", "local://"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """`memory://` is a store that takes whole objects; `local://` is fsspec's file system, where renaming does it."""
    place = tmp_path / "deaths"
    place.mkdir()
    if request.param == "directory":
        yield str(place)
        return
    fsspec = pytest.importorskip("fsspec") if request.param != "file://" else None
    yield f"{request.param}{place}"
    if request.param == "memory://":
        assert fsspec is not None
        fsspec.filesystem("memory").store.clear()


def put(url: str, *some: Evidence) -> None:
    place = open_place(url)
    for one in some:
        place.put(name_of(one), packed(one))


def test_deaths_of_many_hosts_are_found_again(url: str):
    here, there = death("a", 1), death("b", 2)
    put(url, here, there)
    gathered = Gathered(open_place(url))
    assert gathered.all() == (there, here)
    assert gathered.get(here.id) == here
    assert gathered.get(there.id[:6]) == there
    assert gathered.notes == []
    with pytest.raises(NoSuchDeath):
        gathered.get("0123abcd")


def test_one_that_is_sent_twice_is_there_once(url: str):
    one = death()
    put(url, one, one)
    assert Gathered(open_place(url)).all() == (one,)


def test_hosts_with_the_same_death_id_do_not_meet(url: str):
    one, other = death("a"), death("b")
    put(url, *(msgspec.structs.replace(found, id="7f3a91c2") for found in (one, other)))
    gathered = Gathered(open_place(url))
    assert len(gathered.all()) == 2
    with pytest.raises(AmbiguousId):
        gathered.get("7f3a")


@pytest.mark.parametrize("host", ["../../etc", "a/b", "", "ü" * 300, "x_y"])
def test_whatever_a_host_is_called_its_deaths_have_a_name(host: str):
    name = name_of(death(host))
    assert places.NAME.fullmatch(name), name
    assert len(name) < 160


def test_a_name_is_the_same_again_and_another_for_each_process():
    assert name_of(death()) == name_of(death())
    assert len({name_of(death("a", 1)), name_of(death("a", 2)), name_of(death("b", 1))}) == 3


def test_a_place_that_is_not_there_is_not_made(tmp_path: Path):
    """Below a mount point where nothing is mounted, that would look like success."""
    missing = tmp_path / "mnt" / "deaths"
    with pytest.raises(PlaceAway, match="no such directory") as away:
        put(str(missing), death())
    assert f"mkdir -p {missing}" in away.value.then
    assert not missing.parent.exists()
    with pytest.raises(PlaceAway):
        open_place(str(missing)).names()


def test_a_renaming_store_does_not_make_its_place_either(tmp_path: Path):
    pytest.importorskip("fsspec")
    with pytest.raises(PlaceAway):
        put(f"local://{tmp_path}/mnt/deaths", death())
    assert not (tmp_path / "mnt").exists()


def test_a_scheme_that_nobody_knows(tmp_path: Path):
    pytest.importorskip("fsspec")
    with pytest.raises(PlaceAway, match="nosuch"):
        open_place("nosuch://bucket/deaths")


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(PlaceAway, match="s3:// needs fsspec") as away:
        open_place("s3://bucket/deaths")
    assert away.value.then == "pip install fsspec"


def test_a_day_is_open_to_whom_the_place_is_open(tmp_path: Path):
    tmp_path.chmod(0o1777)
    put(str(tmp_path), death())
    (day,) = tmp_path.iterdir()
    assert stat.S_IMODE(day.stat().st_mode) == 0o1777
    (file,) = day.iterdir()
    assert not stat.S_IMODE(file.stat().st_mode) & 0o111


def test_what_others_put_there_is_not_trusted(tmp_path: Path):
    good = death()
    put(str(tmp_path), good)
    (day,) = tmp_path.iterdir()
    bad = [name_of(death(host)) for host in ("fifo", "link", "torn", "other", "huge")]
    os.mkfifo(day / bad[0])
    (day / bad[1]).symlink_to("/dev/zero")
    (day / bad[2]).write_bytes(packed(good)[:100])
    (day / bad[3]).write_bytes(b'{"process": 7}')
    with (day / bad[4]).open("wb") as file:
        file.truncate(places.LARGEST + 1)
    (day / ".new-half").write_bytes(b"{")
    (day / "README").write_bytes(b"not a death")
    gathered = Gathered(open_place(str(tmp_path)))
    assert gathered.all() == (good,)
    assert len(gathered.notes) == 5 and all("skipped" in note for note in gathered.notes)


def test_the_newest_are_listed_and_the_rest_is_said_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(str(tmp_path), *(death(pid=pid, time=1e9 + pid * 86400) for pid in range(5)))
    for module in ("places", "gathered"):
        monkeypatch.setattr(f"lastwords.evidence.{module}.MOST_NAMES", 3)
    gathered = Gathered(open_place(str(tmp_path)))
    assert [one.process.pid for one in gathered.all() if one.process] == [4, 3, 2]
    assert "there may be more" in gathered.notes[0]
