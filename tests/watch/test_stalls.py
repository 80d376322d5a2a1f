"""Processes that really sleep in state D: they read from a file system whose server does not answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords.diagnosis import diagnose
from lastwords.watch import spaces
from tests.watch.running import PATIENCE, leftovers
from tests.watch.stalled_mount import StalledMount, Unmountable
from tests.watch.test_hangs import SLEEPS, kept, running, script, wait_for

READS_A_FILE = """
def waits():
    return open(os.environ["STALLED"], "rb").read(100)
with lastwords.item("shard-17/00042", index=42):
    say(os.getpid())
    assert waits() == bytes(100)
sys.exit(7)
"""


@pytest.fixture
def stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StalledMount]:
    place = tmp_path / "mount"
    place.mkdir()
    try:
        mount = StalledMount(place)
    except Unmountable as error:
        pytest.skip(f"needs a file system that stalls, and none can be mounted here: {error}")
    monkeypatch.setenv("STALLED", str(mount.file))
    yield mount
    mount.close()


@pytest.mark.root
def test_one_that_waits_for_a_dead_file_server(tmp_path: Path, stalled: StalledMount) -> None:
    home = tmp_path / "home"
    with running(home, script(tmp_path, READS_A_FILE)) as process:
        ((found, _),) = kept(home)
        stalled.release()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7, said
    hang = found.hang
    assert hang is not None and (hang.state, hang.blocked_in, hang.answered) == ("D", "read", False)
    assert hang.blocked_on == str(stalled.file)
    assert found.item is not None and found.item.index == 42
    assert any("stacks" in one.what for one in found.missing)
    best = diagnose(found).best
    assert best is not None and best.id == "io-stall"
    assert any(str(stalled.file) in term.text for term in best.terms)
    assert leftovers(home) == []


WORKS_THERE = """
place = os.path.dirname(os.environ["STALLED"])
if os.getcwd() != place:
    os.chdir(place)
    os.execv(sys.executable, [sys.executable, *sys.argv])
"""


@pytest.mark.root
def test_the_watcher_itself_does_not_wait_for_it(tmp_path: Path, stalled: StalledMount) -> None:
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
