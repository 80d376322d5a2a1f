from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords.watch.run_directory import RunDirectory, RunDirectoryRefused


def test_it_is_its_owner_s_alone(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path / "home"))
    assert os.stat(directory.path).st_mode & 0o777 == 0o700
    directory.close(keep_boxes=False)
    assert not os.path.exists(directory.path)


def test_a_home_with_a_very_long_name_has_a_socket_too(tmp_path: Path) -> None:
    home = tmp_path / ("a" * 120) / ("b" * 120)
    directory = RunDirectory(str(home))
    place = os.open(directory.path, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(f"/proc/self/fd/{place}/watcher")
    os.close(place)
    directory.close(keep_boxes=False)


@pytest.mark.parametrize("name", ["", "box", "../../etc/x.box", "a/b.box", "a\0.box"])
def test_a_name_that_is_no_box_has_no_path(tmp_path: Path, name: str) -> None:
    directory = RunDirectory(str(tmp_path))
    assert directory.box(name) is None
    directory.close(keep_boxes=False)


def test_boxes_that_are_still_written_stay(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path))
    box = directory.box("1-2.box")
    assert box is not None
    Path(box).touch()
    directory.close(keep_boxes=True)
    assert os.listdir(directory.path) == ["1-2.box"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(RunDirectoryRefused, match="home"):
        RunDirectory(str(tmp_path / "home"))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "full"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip("needs root to mount a tiny tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
def test_a_full_disk_is_refused_and_left_clean(full_disk: Path) -> None:
    with pytest.raises(RunDirectoryRefused, match="No space left"):
        RunDirectory(str(full_disk))
    assert list(full_disk.glob("runs/*")) == []
