"""The watcher against real processes that announce themselves as the recorder does."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastwords.watch.ending import Ended
from lastwords.watch.processes import Process
from lastwords.watch.run_directory import RunDirectory
from lastwords.watch.status import Status
from lastwords.watch.watcher import Watcher
from lastwords.watch.witnesses import Witnesses, kernel_tells_exits
from tests.watch.running import clean_environment, python

PATIENCE = 30


def announce(directory: str, box_name: bytes = b"", *, descriptors: int = 1) -> None:
    """What crates/blackbox/src/announce.rs does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(f"{directory}/watcher")
        pidfds = [os.pidfd_open(os.getpid()) for _ in range(descriptors)]
        socket.send_fds(client, [struct.pack("<I", os.getpid()) + box_name], pidfds)


def in_fork(work: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 99
        with contextlib.suppress(BaseException):
            code = work()
        os._exit(code)
    return pid


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    made = RunDirectory(str(tmp_path))
    yield made
    made.close(keep_boxes=False)


@pytest.fixture
def watcher(directory: RunDirectory) -> Iterator[Watcher]:
    """Without a command of its own; the children of this test are reaped by it, as `run` would."""
    bury_the_children_of_other_tests()
    with select.epoll() as epoll:
        made = Watcher(-1, directory, epoll)
        made._curves._started()  # Its one descriptor is there before any test counts them.
        yield made


def bury_the_children_of_other_tests() -> None:
    """A watcher reaps whoever is there, and would tell of those whom an earlier test has started and forgotten."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descriptors() -> set[tuple[str, str]]:
    """Those of this process, each with what it is. What earlier tests have left may go meanwhile; nothing may come."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


def ended(watcher: Watcher, count: int) -> list[Ended]:
    found: list[Ended] = []
    while len(found) < count:
        ready = watcher._epoll.poll(PATIENCE)
        assert ready, f"only {len(found)} of {count}"
        found += watcher.ended(ready)
    return found


needs_pidfd_info = pytest.mark.skipif(not kernel_tells_exits(), reason="needs PIDFD_INFO_EXIT (Linux 6.15)")


@needs_pidfd_info
def test_a_process_dead_and_reaped_before_we_look_has_its_status(
    watcher: Watcher, directory: RunDirectory
) -> None:
    def parent() -> int:
        os.waitpid(in_fork(lambda: announce(directory.path) or 42), 0)
        os.waitpid(in_fork(lambda: announce(directory.path) or kill_oneself()), 0)
        return 0

    os.waitpid(
        in_fork(parent), 0
    )  # All three are gone, and gone from /proc, before the watcher's first look.
    statuses = {(one.status.signal, one.status.exit_code, one.status.source) for one in ended(watcher, 2)}
    assert statuses == {(None, 42, "pidfd"), (signal.SIGKILL, None, "pidfd")}


def kill_oneself() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_zombie_that_nobody_reaps_has_its_status_at_once(watcher: Watcher, directory: RunDirectory) -> None:
    done, hold = os.pipe()

    def parent() -> int:
        os.close(hold)
        in_fork(lambda: announce(directory.path) or 7)
        os.read(done, 1)  # Lives, and never waits for its child.
        return 0

    keeper = in_fork(parent)
    (one,) = ended(watcher, 1)
    assert (one.status.exit_code, one.status.source) == (7, "proc")
    os.close(hold)
    os.close(done)
    os.waitpid(keeper, 0)


def test_our_own_child_is_reaped_with_its_status(watcher: Watcher, directory: RunDirectory) -> None:
    pid = in_fork(lambda: announce(directory.path) or 5)
    (one,) = ended(watcher, 1)
    assert (one.process.pid, one.status.exit_code, one.status.source) == (pid, 5, "parent")
    assert len(watcher.living) == 0


def test_two_hundred_at_once(watcher: Watcher, directory: RunDirectory) -> None:
    """All of them connect before the watcher looks for the first time."""

    def begin(number: int) -> int:
        return in_fork(lambda: announce(directory.path) or number % 256)

    pids = [begin(number) for number in range(200)]
    before = descriptors()
    found = {one.process.pid: one.status.exit_code for one in ended(watcher, 200)}
    assert found == {pid: number % 256 for number, pid in enumerate(pids)}
    assert descriptors() <= before


def test_the_worker_comes_before_its_parent(watcher: Watcher, directory: RunDirectory) -> None:
    """Both are gone before we look, the worker even from /proc: its box says whose child it was."""
    program = """
        import os
        if os.fork() == 0:
            os._exit(3)
        os.wait()
        os._exit(1)
    """
    parent = subprocess.Popen(python(program), env=clean_environment(LASTWORDS=directory.path))
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    worker, main = ended(watcher, 2)
    parent.returncode = 1  # Reaped by the watcher.
    assert [worker.status.exit_code, main.status.exit_code] == [3, 1]
    assert worker.process.ancestors == (parent.pid,)
    assert worker.state is not None


@pytest.mark.parametrize("message", [b"", b"abc", b"\0\0\0\0", b"\1\0\0\0" + b"x" * 400, os.urandom(64)])
def test_strange_messages_are_survived(watcher: Watcher, directory: RunDirectory, message: bytes) -> None:
    before = descriptors()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(f"{directory.path}/watcher")
        client.send(message)
    watcher.ended(watcher._epoll.poll(PATIENCE))
    for process in watcher.living:
        watcher._end(process, Status(None, "unknown"))
    assert descriptors() <= before


def test_too_many_descriptors_are_closed(watcher: Watcher, directory: RunDirectory) -> None:
    before = descriptors()
    in_fork(lambda: announce(directory.path, descriptors=5) or 0)
    assert len(ended(watcher, 1)) == 1
    assert descriptors() <= before


def test_a_connection_without_a_word_is_no_process(watcher: Watcher, directory: RunDirectory) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(f"{directory.path}/watcher")
        watcher.ended(watcher._epoll.poll(PATIENCE))
        assert len(watcher.living) == 0
    watcher.ended(watcher._epoll.poll(PATIENCE))
    assert watcher._connections == {}


def test_an_exec_replaces_the_process(watcher: Watcher, directory: RunDirectory) -> None:
    """The same process announces itself twice, as Python that execs Python does: it ends once."""
    box = Path(directory.path) / "1-1.box"
    box.touch()

    def work() -> int:
        announce(directory.path, b"1-1.box")
        announce(directory.path, b"1-2.box")
        return 0

    in_fork(work)
    (one,) = ended(watcher, 1)
    assert one.process.box == f"{directory.path}/1-2.box"
    assert not box.exists()


def test_without_a_pidfd_the_status_is_honestly_unknown() -> None:
    child = subprocess.Popen(python(""))
    child.wait()
    status = Witnesses("none").of_ended(Process(pid=child.pid, own_pid=child.pid, started=1))
    assert status is not None
    assert (status.raw, status.source) == (None, "unknown")


def test_a_box_that_nobody_announced_is_found_at_the_end(watcher: Watcher, directory: RunDirectory) -> None:
    """The queue was full, say. Nobody saw how it ended; its crash record did."""
    os.unlink(f"{directory.path}/watcher")
    program = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    subprocess.run(python(program), env=clean_environment(LASTWORDS=directory.path), check=False)
    (one,) = watcher.never_announced()
    assert (one.status.signal, one.status.source) == (signal.SIGSEGV, "black box")
    assert watcher.never_announced() == []
