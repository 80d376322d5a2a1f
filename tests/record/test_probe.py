"""Asking a living process where it stands, without disturbing what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lastwords import _native

ROOT = Path(__file__).parents[2]


@contextmanager
def living(program: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A recorded process that has said "ready" and is now stuck."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "LASTWORDS": str(directory), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def probe(process: subprocess.Popen[str], directory: Path) -> tuple[dict[str, Any], list[Any]]:
    (box,) = directory.glob(f"{process.pid}-*.box")
    number = json.loads(_native.read_box(box))["identity"]["probe_signal"]
    os.kill(process.pid, number)
    taken = Path(f"{box}.probe")
    while not taken.exists():  # it is renamed to this when it is whole
        os.sched_yield()
    return json.loads(_native.read_probe(taken)), json.loads(_native.autopsy_probe(taken))


STUCK = """
    import sys, threading
    held = threading.Lock()
    held.acquire()
    def waits_for_ever():
        held.acquire()
    def reads_for_ever():
        print("ready", flush=True)
        return sys.stdin.readline()
    threading.Thread(target=waits_for_ever, daemon=True).start()
    print("went on with", reads_for_ever().strip(), flush=True)
"""


def until_all_wait(process: subprocess.Popen[str]) -> None:
    """The first in read(2), the other for the lock: with no limit of time, as nobody waits for the interpreter's own."""
    read, futex, no_timeout = "0", "202", "0x0"
    while True:
        tasks = sorted(Path(f"/proc/{process.pid}/task").iterdir(), key=lambda task: int(task.name))
        calls = [(task / "syscall").read_text().split() for task in tasks]
        if [call[0] for call in calls] == [read, futex] and calls[1][4] == no_timeout:
            return
        os.sched_yield()


@pytest.mark.timeout(60)
def test_all_threads_tell_where_they_stand_and_go_on(tmp_path):
    with living(STUCK, tmp_path) as process:
        until_all_wait(process)
        taken, stacks = probe(process, tmp_path)
        answer, _ = process.communicate("a line\n", timeout=20)
    assert answer == "went on with a line\n" and process.returncode == 0
    assert [thread["answered"] for thread in taken["threads"]] == [True, True]
    assert "reads_for_ever" in taken["python_text"] and "waits_for_ever" in taken["python_text"]
    leader, other = ([frame["function"] for frame in stack["frames"]] for stack in stacks)
    assert "_start" in leader
    assert any("sem" in name or "futex" in name for name in other[:4] if name)
    waits = next(thread for thread in taken["threads"] if thread["futex_address"])
    assert waits["state"] == "S" and waits["syscall"].startswith("202 ")


MUTEX = """
    import ctypes, sys, threading
    libc = ctypes.CDLL(None)
    mutex = (ctypes.c_char * 40)()
    libc.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    libc.pthread_mutex_lock(mutex)
"""


@pytest.mark.timeout(60)
def test_a_mutex_names_its_owner(tmp_path):
    with living(MUTEX, tmp_path) as process:
        while "futex" not in Path(f"/proc/{process.pid}/wchan").read_text():
            os.sched_yield()
        taken, _ = probe(process, tmp_path)
    stuck = taken["threads"][0]
    assert (stuck["tid"], stuck["state"], stuck["syscall"]) == (process.pid, "S", "202")
    # glibc's mutex: lock, count, owner. It waits for itself.
    assert int.from_bytes(bytes.fromhex(stuck["futex_bytes"])[8:12], "little") == process.pid


@pytest.mark.timeout(60)
def test_it_can_be_asked_again_and_then_die(tmp_path):
    with living(STUCK, tmp_path) as process:
        first, _ = probe(process, tmp_path)
        (box,) = tmp_path.glob("*.box")
        Path(f"{box}.probe").unlink()
        second, _ = probe(process, tmp_path)
        assert second["time_ns"] > first["time_ns"]
        os.kill(process.pid, signal.SIGSEGV)
        assert process.wait(20) == -signal.SIGSEGV
    record = json.loads(_native.read_box(box))
    # What CPython writes in a crash goes into the box again, not into the probe.
    assert "reads_for_ever" in record["python_text"]


@pytest.mark.timeout(60)
def test_a_busy_loop_is_caught_in_the_act(tmp_path):
    busy = """
        def spins():
            print("ready", flush=True)
            while True:
                pass
        spins()
    """
    with living(busy, tmp_path) as process:
        taken, stacks = probe(process, tmp_path)
    assert "spins" in taken["python_text"]
    assert "_PyEval_EvalFrameDefault" in [frame["function"] for frame in stacks[0]["frames"]]
