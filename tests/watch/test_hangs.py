"""Processes that really hang, under `lastwords run --hang-after`: explained, and not harmed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lastwords import _native
from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence
from lastwords.evidence.store import Store
from lastwords.show.json import document
from lastwords.watch import descriptors, hangs, probes, threads
from lastwords.watch.layout import FIRST_VERSION
from lastwords.watch.processes import Process
from tests.watch.running import (
    LASTWORDS,
    PATIENCE,
    clean_environment,
    leftovers,
    python,
    run,
    run_words,
    soon,
)

AFTER = 1.0
SOON = 2.0
"""Within this much of the time-out the hang must be explained."""

RELEASE = """
import ctypes, os, signal, socket, sys, threading, time
import lastwords

def when_told(action):
    def wait():
        sys.stdin.readline()
        action()
    threading.Thread(target=wait, daemon=True).start()

def say(text):
    print(text, flush=True)
"""

SLEEPS = """
class Released(Exception): pass
def release(*_): raise Released
signal.signal(signal.SIGUSR1, release)
when_told(lambda: os.kill(os.getpid(), signal.SIGUSR1))
def waits():
    time.sleep(10 ** 6)  # here
before = time.time()
with lastwords.item("shard-17/00042", index=42):
    say(before)
    try:
        waits()
    except Released:
        pass
sys.exit(7)
"""

READS = """
near, far = socket.socketpair()
when_told(lambda: far.sendall(b"late"))
def waits():
    return near.recv(100)  # here
before = time.time()
with lastwords.item("shard-17/00042", index=42):
    say(before)
    assert waits() == b"late"
sys.exit(7)
"""

SPINS = """
released = []
when_told(lambda: released.append(1))
def waits():
    while not released: pass  # here
before = time.time()
with lastwords.item("shard-17/00042", index=42):
    say(before)
    waits()
sys.exit(7)
"""

HELD_LOCK = """
import warnings
warnings.simplefilter("ignore")
libc = ctypes.CDLL(None)
mutex = (ctypes.c_char * 40)()
held, done = threading.Event(), threading.Event()
def holds():
    libc.pthread_mutex_lock(mutex)
    held.set()
    done.wait()
threading.Thread(target=holds, daemon=True).start()
held.wait()
def waits():
    libc.pthread_mutex_lock(mutex)  # here
pid = os.fork()
if pid == 0:
    when_told(lambda: libc.pthread_mutex_unlock(mutex))
    before = time.time()
    with lastwords.item("shard-17/00042", index=42):
        say(before)
        waits()
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def script(directory: Path, program: str) -> Path:
    path = directory / "victim.py"
    path.write_text(RELEASE + program)
    return path


def line_of(path: Path, mark: str = "# here") -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if mark in line)


@contextmanager
def running(
    home: Path, path: Path, *options: str, cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    words = run_words(home, [python("")[0], str(path)], "--hang-after", str(AFTER), *options)
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kept(home: Path, count: int = 1) -> list[tuple[Evidence, float]]:
    """Hangs with the time at which each was written down, once there are that many."""
    return wait_for(lambda: _kept(home), lambda found: len(found) >= count)


def wait_for(ask: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
    until = time.monotonic() + PATIENCE
    while not is_good(found := ask()):
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


def _kept(home: Path) -> list[tuple[Evidence, float]]:
    store = Store(home)
    return [(one, (store.directory / one.id / "evidence.json").stat().st_mtime) for one in store.all()]


@pytest.mark.parametrize(
    ("program", "call", "state", "function"),
    [
        (SLEEPS, "clock_nanosleep", "S", "clock_nanosleep"),
        (READS, "recvfrom", "S", "recv"),
        (SPINS, "running", "R", "_PyEval_EvalFrameDefault"),
        (HELD_LOCK, "futex", "S", "lock"),
    ],
    ids=["sleeps", "reads a socket", "spins", "waits for a lock"],
)
def test_each_names_item_line_and_call_and_goes_on(
    home: Path, tmp_path: Path, program: str, call: str, state: str, function: str
) -> None:
    path = script(tmp_path, program)
    with running(home, path) as process:
        assert process.stdout is not None
        began = float(process.stdout.readline())
        ((found, written),) = kept(home)
        _, said = process.communicate("go on\n", timeout=PATIENCE)
    assert process.returncode == 7, said
    assert AFTER <= written - began < AFTER + soon(SOON)
    hang = found.hang
    assert hang is not None and found.status is None
    assert (hang.blocked_in, hang.state, hang.answered) == (call, state, True)
    assert AFTER <= hang.seconds < AFTER + soon(SOON)
    assert found.item is not None and (found.item.key, found.item.index) == ("shard-17/00042", 42)
    assert found.python_stack is not None and found.native_stack is not None
    inner = found.python_stack.frames[0]
    assert (inner.file, inner.line, inner.function) == (str(path), line_of(path), "waits")
    assert any(function in (frame.function or "") for frame in found.native_stack.frames[:12])
    assert not [one for one in found.missing if "ended" in one.what]
    assert leftovers(home) == []


def hang_of(home: Path, tmp_path: Path, program: str) -> Evidence:
    with running(home, script(tmp_path, program)) as process:
        ((found, _),) = kept(home)
        process.communicate("go on\n", timeout=PATIENCE)
    assert process.returncode == 7
    return found


def test_the_owner_of_a_lock_that_stayed_behind_in_the_parent(home: Path, tmp_path: Path) -> None:
    found = hang_of(home, tmp_path, HELD_LOCK)
    assert found.hang is not None and found.hang.lock is not None
    assert found.hang.lock.owner is not None and found.hang.lock.owner_is_here is False
    assert found.process is not None and found.process.is_child


def test_a_lock_that_a_living_thread_holds(home: Path, tmp_path: Path) -> None:
    program = HELD_LOCK.partition("pid = os.fork()")[0] + (
        "when_told(lambda: libc.pthread_mutex_unlock(mutex))\n"
        "with lastwords.item('a', index=1):\n    waits()\nsys.exit(7)\n"
    )
    found = hang_of(home, tmp_path, program)
    assert found.hang is not None and found.hang.lock is not None
    assert found.hang.lock.owner_is_here is True
    assert found.hang.lock.owner in {thread.tid for thread in found.hang.threads}


def test_how_much_it_ran(home: Path, tmp_path: Path) -> None:
    """The other thread, and whoever shares the machine, may take some of the CPU; it never sleeps."""
    hang = hang_of(home, tmp_path, SPINS).hang
    assert hang is not None and hang.ran is not None and hang.waited is not None
    assert hang.ran + hang.waited > 0.5
    idle = hang_of(home.with_name("other"), tmp_path, SLEEPS).hang
    assert idle is not None and idle.ran is not None and idle.ran < 0.2


def test_all_threads_are_told(home: Path, tmp_path: Path) -> None:
    found = hang_of(home, tmp_path, SLEEPS)
    assert found.hang is not None and found.other_threads is not None
    assert [thread.blocked_in for thread in found.hang.threads] == ["clock_nanosleep", "read"]
    assert found.memory is not None and found.memory.curve
    assert all(thread.frames for thread in found.hang.threads)
    assert found.other_threads[0].frames[0].function == "wait"


def test_who_it_is_connected_to(home: Path, tmp_path: Path) -> None:
    program = """
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
say(listener.getsockname()[1])
when_told(lambda: far.sendall(b"late"))
with lastwords.item("a", index=1):
    assert near.recv(100) == b"late"
sys.exit(7)
"""
    with running(home, script(tmp_path, program)) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        ((found, _),) = kept(home)
        process.communicate("go on\n", timeout=PATIENCE)
    assert process.returncode == 7
    assert found.hang is not None and found.hang.blocked_on == f"a connection to 127.0.0.1:{port}"
    shown = document(diagnose(found)).hang
    assert shown is not None
    assert (shown.blocked_on, shown.threads[0].blocked_on) == (found.hang.blocked_on, found.hang.blocked_on)
    assert (shown.wait_channel, shown.others, shown.alike) == (found.hang.wait_channel, 0, 0)


@pytest.mark.parametrize(
    ("family", "text", "name"),
    [
        (socket.AF_INET, "0500000A:01BB", "10.0.0.5:443"),
        (socket.AF_INET6, "00000000000000000000000001000000:0050", "[::1]:80"),
        (socket.AF_INET, "00000000:0000", None),
        (socket.AF_INET, "0500:01BB", None),
        (socket.AF_INET, "no", None),
    ],
)
def test_addresses_as_the_kernel_writes_them(
    family: socket.AddressFamily, text: str, name: str | None
) -> None:
    if sys.byteorder == "little":
        assert descriptors.address(family, text) == name


def test_the_panel_and_the_closing_line(home: Path, tmp_path: Path) -> None:
    path = script(tmp_path, SLEEPS)
    with running(home, path) as process:
        kept(home)
        _, said = process.communicate("go on\n", timeout=PATIENCE)
    assert "hangs on item 42" in said
    assert f"victim.py:{line_of(path)} in waits" in said
    assert "1 hang in this job" in said.splitlines()[-1]


def test_once_for_each_item_and_again_for_the_next(home: Path, tmp_path: Path) -> None:
    program = """
for index in range(2):
    with lastwords.item(f"item-{index}", index=index):
        sys.stdin.readline()
sys.exit(7)
"""
    with running(home, script(tmp_path, program)) as process:
        assert process.stdin is not None
        kept(home)
        time.sleep(1.5 * AFTER)  # the same item is too old once more, and must not be explained again
        assert len(_kept(home)) == 1
        process.stdin.write("\n")
        process.stdin.flush()
        kept(home, 2)
        process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 7
    assert {one.item.index for one, _ in _kept(home) if one.item} == {0, 1}


def test_short_items_are_never_disturbed(home: Path, tmp_path: Path) -> None:
    program = """
for index in range(40):
    with lastwords.item("a", index=index):
        time.sleep(0.05)
time.sleep(1.5)
sys.exit(7)
"""
    with running(home, script(tmp_path, program)) as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said, _kept(home)) == (7, "", [])


def test_one_that_is_stopped_is_told_and_not_signalled(home: Path, tmp_path: Path) -> None:
    """A probe signal would stay pending and come when nobody expects it any more."""
    program = """
say(os.getpid())
with lastwords.item("a", index=1):
    os.kill(os.getpid(), signal.SIGSTOP)  # here
sys.exit(7)
"""
    path = script(tmp_path, program)
    with running(home, path) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        ((found, _),) = kept(home)
        pending = Path(f"/proc/{pid}/status").read_text().partition("ShdPnd:\t")[2].split()[0]
        os.kill(pid, signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 7
    assert found.hang is not None and (found.hang.state, found.hang.answered) == ("T", False)
    assert int(pending, 16) == 0
    assert any("native stacks" in one.what for one in found.missing)
    if sys.version_info >= FIRST_VERSION:
        assert found.python_stack is not None
        assert found.python_stack.frames[-1].line == line_of(path), "read from its memory"


def test_kill_hung(home: Path, tmp_path: Path) -> None:
    with running(home, script(tmp_path, SLEEPS), "--kill-hung") as process:
        assert process.stderr is not None
        said = process.stderr.read()
        process.wait(PATIENCE)
    assert process.returncode == -signal.SIGKILL
    ((found, _),) = _kept(home)
    assert found.hang is not None and found.hang.blocked_in == "clock_nanosleep"
    assert "1 hang in this job" in said and "death" not in said.splitlines()[-1]
    assert leftovers(home) == []


def test_a_killed_worker_s_echo_in_the_parent_is_no_second_death(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "pool.py"
    path.write_text("""
import concurrent.futures, multiprocessing, time
def work(index):
    time.sleep(10 ** 6 if index == 1 else 0)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        list(pool.map(work, range(2)))
""")
    with running(home, path, "--kill-hung") as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    ((found, _),) = _kept(home)
    assert found.item is not None and found.hang is not None
    last = said.splitlines()[-1]
    assert "1 hang in this job; the job then ended with BrokenProcessPool, exit status 1" in last


def test_it_is_found_again(home: Path, tmp_path: Path) -> None:
    found = hang_of(home, tmp_path, READS)
    listed = ask(home, "list", "--json")
    assert [one["death"]["id"] for one in listed] == [found.id]
    shown = ask(home, "show", found.id, "--json")
    assert (shown["death"]["signal"], shown["death"]["exit_code"]) == (None, None)
    assert shown["death"]["item"] == {"key": "shard-17/00042", "index": 42}
    assert (shown["hang"]["blocked_in"], shown["hang"]["limit"]) == ("recvfrom", AFTER)
    assert shown["python_stack"][0]["function"] == "waits"
    text = subprocess.run(
        [*LASTWORDS, "--home", str(home), "show", found.id], capture_output=True, text=True, check=True
    ).stdout
    assert "sleeps, in recvfrom" in text


def ask(home: Path, *words: str) -> Any:
    done = subprocess.run([*LASTWORDS, "--home", str(home), *words], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_the_evidence_survives_the_disk(home: Path, tmp_path: Path) -> None:
    found = hang_of(home, tmp_path, SLEEPS)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Evidence) == found


def version_1_group(controller: str) -> Path:
    """A group below our own in a hierarchy of version 1."""
    found = [path for path, version in _native.control_groups(os.getpid(), controller) if version == 1]
    if not found or os.geteuid() != 0:
        pytest.skip(f"needs root and the {controller} controller of cgroups, version 1")
    place = Path(found[0]) / f"lastwords-hangs-{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        pytest.skip("groups cannot be made here")
    return place


IN_A_GROUP = """
released = []
when_told(lambda: released.append(1))
def waits():
    while not released: pass
with lastwords.item("a", index=1):
    open(os.environ["GROUP"] + "/cgroup.procs", "w").write("0")
    say(os.getpid())
    waits()
sys.exit(7)
"""


@pytest.mark.root
def test_one_that_is_not_let_run_is_starved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = version_1_group("cpu")
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("5000")
        monkeypatch.setenv("GROUP", str(group))
        with running(home, script(tmp_path, IN_A_GROUP)) as process:
            ((found, _),) = kept(home)
            (group / "cpu.cfs_quota_us").write_text("-1")
            process.communicate("go on\n", timeout=PATIENCE)
        assert process.returncode == 7
    finally:
        wait_for((group / "cgroup.procs").read_text, lambda text: text == "")
        group.rmdir()
    best = diagnose(found).best
    assert best is not None and best.id == "cpu-starvation", (found.hang, found.machine)
    # It was moved there while it lived: its group is asked anew at each look.
    assert found.hang is not None and found.hang.quota == 0.05
    assert best.facts["quota"] == 0.05


@pytest.mark.root
def test_one_that_is_frozen_does_not_wait_for_a_disk(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = version_1_group("freezer")
    try:
        monkeypatch.setenv("GROUP", str(group))
        (group / "freezer.state").write_text("FROZEN")  # whoever joins it freezes
        with running(home, script(tmp_path, IN_A_GROUP)) as process:
            ((found, _),) = kept(home)
            (group / "freezer.state").write_text("THAWED")
            process.communicate("go on\n", timeout=PATIENCE)
        assert process.returncode == 7
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_for((group / "cgroup.procs").read_text, lambda text: text == "")
        group.rmdir()
    best = diagnose(found).best
    assert best is not None and best.id == "hang", found.hang
    assert "is frozen" in best.sentence, found.hang


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--kill-hung"], "--kill-hung needs to know when"),
        (["--hang-after", "0"], "hang-after"),
        (["--hang-after", "soon"], "hang-after"),
    ],
)
def test_wrong_use(home: Path, options: list[str], text: str) -> None:
    done = run(home, python(""), *options)
    assert done.returncode == 2
    assert text in done.stderr


SLOW_TO_ANSWER = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.kill(os.getpid(), signal.SIGUSR2)
print("ready", flush=True)
while sys.argv[1] == "runs": pass
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["runs", "sleeps"])
def test_one_that_is_not_let_run_may_still_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal waits, and it would take it if it had a CPU. One that sleeps all the same does not want it."""
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_ANSWER, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        wait_for(
            lambda: threads.look(child.pid)[0].state, lambda state: state == ("R" if kind == "runs" else "S")
        )
        process = Process(pid=child.pid, own_pid=child.pid, box="/nonexistent.box")
        monkeypatch.setattr(probes, "state_of", lambda _: probes.State(1, signal.SIGUSR2))
        assert probes.is_coming(process) == (kind == "runs")
        monkeypatch.setattr(probes, "state_of", lambda _: probes.State(1, signal.SIGUSR1))
        assert not probes.is_coming(process), "it was not asked"
        child.kill()


def test_one_that_is_writing_its_answer_is_waited_for(tmp_path: Path) -> None:
    process = Process(pid=os.getpid(), own_pid=os.getpid(), box=str(tmp_path / "1-1.box"))
    begun = tmp_path / "1-1.box.probing"
    begun.touch()
    assert hangs._may_answer(process, hangs.PATIENCE_NS)
    assert not hangs._may_answer(process, hangs.PATIENCE_WITH_STARVED_NS)
    begun.unlink()
    assert not hangs._may_answer(process, hangs.PATIENCE_NS)
    assert hangs._may_answer(process, hangs.PATIENCE_NS - 1)
