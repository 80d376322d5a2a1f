"""Processes that really sleep in state D: they read from a file system whose server does not answer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence
from lastwords.evidence.blocked import PAGE_FAULT
from lastwords.watch import spaces
from lastwords.watch.layout import FIRST_VERSION
from tests.watch.running import PATIENCE, leftovers
from tests.watch.test_hangs import SLEEPS, kept, line_of, running, script, wait_for
from zoo.file_server import STALLED, Ask, Mount, Unmountable

WAITS = """
file = os.environ["STALLED"]
{first}
def waits():
    return {reading}  # here
with lastwords.item("shard-17/00042", index=42):
    say(os.getpid())
    assert waits()
sys.exit(7)
"""
READS_A_FILE = WAITS.format(first="", reading='open(file, "rb").read(100) == bytes(100)')
OPENS_A_FILE = WAITS.format(
    first="", reading='os.open("data", os.O_RDONLY, dir_fd=os.open(os.path.dirname(file), 0))'
)
TOUCHES_A_PAGE = WAITS.format(
    first="import mmap\npage = mmap.mmap(os.open(file, os.O_RDONLY), 4096, prot=mmap.PROT_READ)",
    reading="page[17] == 0",
)
WRITES_A_FILE = WAITS.format(first="", reading='open(file, "wb", 0).write(b"x")')


@pytest.fixture
def stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Mount]:
    place = tmp_path / "mount"
    place.mkdir()
    try:
        mount = Mount(place, stalled=getattr(request, "param", STALLED))
    except Unmountable as error:
        pytest.skip(f"needs a file system that stalls, and none can be mounted here: {error}")
    monkeypatch.setenv("STALLED", str(mount.file))
    yield mount
    mount.close()


def stall_of(home: Path, path: Path, release: Callable[[], object]) -> Evidence:
    """What is said of a process that stands at `# here`, in a wait that no signal reaches; then it goes on."""
    with running(home, path) as process:
        ((found, _),) = kept(home)
        release()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7, said
    assert found.hang is not None and not found.hang.answered
    assert found.item is not None and found.item.index == 42
    if sys.version_info >= FIRST_VERSION:
        assert found.python_stack is not None
        inner = found.python_stack.frames[0]
        assert (inner.file, inner.line, inner.function) == (str(path), line_of(path), "waits")
    best = diagnose(found).best
    assert best is not None and best.id == "io-stall", best
    assert leftovers(home) == []
    return found


@pytest.mark.root
def test_one_that_waits_for_a_dead_file_server(tmp_path: Path, stalled: Mount) -> None:
    found = stall_of(tmp_path / "home", script(tmp_path, READS_A_FILE), stalled.release)
    hang = found.hang
    assert hang is not None and (hang.state, hang.blocked_in) == ("D", "read")
    assert hang.blocked_on == str(stalled.file)
    assert (hang.mount, hang.file_system) == (str(stalled.place), "fuse stalled")
    assert any("native stacks" in one.what for one in found.missing)
    best = diagnose(found).best
    assert best is not None and str(stalled.place) in best.sentence
    assert any(str(stalled.file) in term.text for term in best.terms)
    assert any("umount" in (step.command or "") for step in best.steps)


@pytest.mark.root
@pytest.mark.parametrize("stalled", [(Ask.OPEN,)], indirect=True)
def test_one_that_waits_for_a_file_to_be_opened(tmp_path: Path, stalled: Mount) -> None:
    """It waits where a signal reaches it at first; after the probe signal, where none does. The path is in its memory."""
    found = stall_of(tmp_path / "home", script(tmp_path, OPENS_A_FILE), stalled.release)
    assert found.hang is not None and found.hang.blocked_in == "openat"
    assert (found.hang.blocked_on, found.hang.mount) == (str(stalled.file), str(stalled.place))


@pytest.mark.root
def test_one_that_waits_for_a_page(tmp_path: Path, stalled: Mount) -> None:
    """As with a dataset that is mapped into memory from a file server."""
    found = stall_of(tmp_path / "home", script(tmp_path, TOUCHES_A_PAGE), stalled.release)
    assert found.hang is not None and (found.hang.state, found.hang.blocked_in) == ("D", PAGE_FAULT)
    assert (found.hang.blocked_on, found.hang.mount) == (str(stalled.file), str(stalled.place))


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk in a file, with ext4 on it, frozen as for a snapshot."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount", "fsfreeze") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'no more'}")
    image, place = tmp_path / "disk.img", tmp_path / "frozen"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    steps: tuple[list[str | Path], ...] = (
        ["mkfs.ext4", "-q", image],
        ["mount", "-o", "loop", image, place],
        ["fsfreeze", "-f", place],
    )
    for words in steps:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            subprocess.run(["umount", place], capture_output=True, check=False)
            pytest.skip(f"needs a disk in a file: {done.stderr}")
    monkeypatch.setenv("STALLED", str(place / "data"))
    yield place
    thaw(place)
    subprocess.run(["umount", "--lazy", place], check=True)


def thaw(place: Path) -> None:
    """Once more does no harm."""
    subprocess.run(["fsfreeze", "-u", place], capture_output=True, check=False)


@pytest.mark.root
def test_one_that_writes_to_a_frozen_disk(tmp_path: Path, frozen: Path) -> None:
    found = stall_of(tmp_path / "home", script(tmp_path, WRITES_A_FILE), lambda: thaw(frozen))
    hang = found.hang
    assert hang is not None and hang.state == "D"
    assert hang.blocked_on == str(frozen / "data") and hang.mount == str(frozen)
    assert hang.file_system is not None and hang.file_system.startswith("ext4 /dev/loop")
    best = diagnose(found).best
    assert best is not None
    assert any(f"fsfreeze --unfreeze {frozen}" == step.command for step in best.steps), hang.wait_channel


WORKS_THERE = """
place = os.path.dirname(os.environ["STALLED"])
if os.getcwd() != place:
    os.chdir(place)
    os.execv(sys.executable, [sys.executable, *sys.argv])
"""


@pytest.mark.root
def test_the_watcher_itself_does_not_wait_for_it(tmp_path: Path, stalled: Mount) -> None:
    """The job's working directory lies there: how full it is, nobody can say. The job must hear its signals all the
    same.
    """
    home = tmp_path / "home"
    with running(home, script(tmp_path, WORKS_THERE + SLEEPS)) as process:
        ((found, _),) = kept(home)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)  # and its standard input stays open, whose end would release the job
    assert process.returncode == -signal.SIGTERM
    assert any(f"how full {stalled.place} is" in one.what for one in found.missing)
    assert found.machine is not None
    assert str(stalled.place) not in [one.path for one in found.machine.spaces or ()]


def test_a_file_server_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    asked: list[str] = []

    def ask(path: str) -> list[spaces.Space]:
        asked.append(path)
        answers.wait()
        return [spaces.Space(path, 1, 2, None)]

    monkeypatch.setattr(spaces, "_space", ask)
    monkeypatch.setattr(spaces, "PATIENCE", 0.01)
    kinds = {"/": "ext4", "/data": "nfs4", "/data/fast": "fuse.gcsfuse"}
    for _ in range(2):
        found = spaces.look(["/data/a", "/data/fast/b"], kinds)
        assert found == spaces.Spaces((), (("/data/a", "nfs4"), ("/data/fast/b", "fuse.gcsfuse")))
    assert asked == ["/data/a"]
    answers.set()
    monkeypatch.setattr(spaces, "PATIENCE", PATIENCE)
    wait_for(lambda: spaces.look(["/data/a"], kinds).found, bool)


def test_the_kind_of_the_file_system_that_is_nearest() -> None:
    assert spaces.kind_at("/proc/self/status", spaces.mounted()) == "proc"
    assert spaces.kind_at("/a b/c", {"/": "ext4", "/a b": "nfs"}) == "nfs"
    assert spaces.kind_at("/ab/c", {"/": "ext4", "/a": "nfs"}) == "ext4"
    assert (spaces.kind_at("/a", {}), spaces.kind_at("", {"/": "ext4"})) == ("", "")
