"""Python lines of processes that cannot be asked, read from their memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastwords.watch import layout, outside, threads
from lastwords.watch.layout import Layout, own_layout
from lastwords.watch.outside import Frame, Inside
from lastwords.watch.process_memory import Unreadable, mapped_files, memory_of
from tests.watch.running import PATIENCE, clean_environment
from tests.watch.test_hangs import line_of, wait_for

STANDS = """
import os, signal, sys, threading
def größer(ready):
    os.write(1, b"ready" if ready else b"")
    signal.pause()  # here
class Наука:
    def π(self):
        return [größer(True) for _ in range(1)]  # called here
def elsewhere(go):
    go.set()
    threading.Event().wait()  # elsewhere
go = threading.Event()
if "fork" in sys.argv:
    pid = os.fork()
    if pid:
        os.write(2, str(pid).encode() + b"\\n")
        os.waitpid(pid, 0)
        sys.exit()
threading.Thread(target=elsewhere, args=(go,), daemon=True).start()
go.wait()
Наука().π()
"""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "größer.py"
    path.write_text(STANDS, encoding="utf-8")
    return path


@contextmanager
def standing(path: Path, *words: str, python: str = sys.executable) -> Iterator[int]:
    """The pid of a process that stands in `größer`, and is stopped there."""
    process = subprocess.Popen(
        [python, str(path), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(PYTHONUTF8="1"),
    )
    assert process.stdout is not None and process.stderr is not None
    pid = int(process.stderr.readline()) if "fork" in words else process.pid
    try:
        assert process.stdout.read(5) == b"ready"
        # The frame is pushed before the call, so a thread that has said it is ready stands there, or is about to.
        wait_for(lambda: threads.look(pid), lambda found: {one.state for one in found} == {"S"})
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: threads.look(pid), lambda found: {one.state for one in found} == {"T"})
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


@contextmanager
def killed_at_last(words: list[str], cwd: Path | None = None) -> Iterator[int]:
    process = subprocess.Popen(words, cwd=cwd)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait(PATIENCE)


def inside(pid: int) -> Inside:
    found = outside.look(pid, threads.look(pid)[0])
    assert found is not None
    return found


needs_own_layout = pytest.mark.skipif(
    sys.version_info < layout.FIRST_VERSION, reason="frames are read from Python 3.11 on"
)


@needs_own_layout
@pytest.mark.parametrize("words", [(), ("fork",)], ids=["a process", "a forked one"])
def test_each_thread_with_its_lines(victim: Path, words: tuple[str, ...]) -> None:
    with standing(victim, *words) as pid:
        stacks = inside(pid).stacks
        seen = {one.tid for one in threads.look(pid)}
    assert stacks.keys() == seen and len(seen) == 2
    main = stacks.pop(pid)
    assert main[0] == Frame(str(victim), line_of(victim), "größer")
    called = [one for one in main if one.line == line_of(victim, "# called here")]
    assert called[-1].function == "π" and main[-1].function == "<module>"
    (other,) = stacks.values()
    assert Frame(str(victim), line_of(victim, "# elsewhere"), "elsewhere") in other


@needs_own_layout
def test_the_lines_are_those_that_python_itself_says() -> None:
    """Of our own threads, one of which stands, while this one runs."""
    with layout.standing() as known, memory_of(os.getpid()) as memory:
        found, files = own_layout(), list(mapped_files(os.getpid()))
        assert found is not None
        base = min(one.start for one in files if one.file == found.image)
        stacks = dict(outside._read(memory, found, base))
        # Python's own walk begins with the innermost, too.
        walked = traceback.walk_stack(known.frame)
        expected = [Frame(one.f_code.co_filename, line, one.f_code.co_name) for one, line in walked]
    assert list(stacks[known.native_id]) == expected


def other_python() -> str:
    for name in ("/usr/bin/python3", "/usr/local/bin/python3"):
        path = os.path.realpath(name)
        if os.path.exists(path) and not os.path.samefile(path, sys.executable):
            return path
    pytest.skip("there is no other Python here")


def test_of_another_interpreter_nothing_is_said(victim: Path) -> None:
    with standing(victim, python=other_python()) as pid:
        assert inside(pid).stacks == {}


def test_of_a_program_that_is_no_python_nothing_is_said() -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    with killed_at_last([sleep, "1000"]) as pid:
        wait_for(lambda: threads.look(pid)[0].syscall, lambda call: call is not None)
        assert inside(pid).stacks == {}


def test_one_that_is_gone_cannot_be_read() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(PATIENCE)
    assert outside.look(process.pid, threads.Thread(process.pid)) is None


def test_memory_that_locks_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(outside, "PATIENCE", 0.01)
    monkeypatch.setattr(outside, "mapped_files", lambda _: answers.wait() and ())
    assert outside.look(os.getpid(), threads.Thread(os.getpid())) is None
    answers.set()


def test_what_a_path_is_that_a_call_was_given(tmp_path: Path) -> None:
    """A pipe with a name: whoever opens it waits for another to do so, too."""
    pipe = tmp_path / "größer"
    os.mkfifo(pipe)
    with killed_at_last([sys.executable, "-c", f"open({str(pipe)!r})"], cwd=tmp_path) as pid:
        found = wait_for(lambda: inside(pid), lambda found: str(pipe) in found.texts)
    assert found.working_directory == str(tmp_path)


@needs_own_layout
@given(st.data())
@settings(max_examples=150)
def test_a_memory_that_says_anything(data: st.DataObject) -> None:
    """Our own, read with offsets that are wrong: it may find nothing, and must come to an end."""
    found = own_layout()
    assert found is not None
    numbers = [one.name for one in fields(Layout) if isinstance(getattr(found, one.name), int)]
    changed = data.draw(st.dictionaries(st.sampled_from(numbers), st.integers(0, 1 << 20), min_size=1))
    with memory_of(os.getpid()) as memory:
        base = min(one.start for one in mapped_files(os.getpid()) if one.file == found.image)
        try:
            stacks = dict(outside._read(memory, replace(found, **changed), base))  # type: ignore[arg-type]
        except Unreadable:
            return
    assert len(stacks) <= outside.MOST_THREADS


@pytest.mark.parametrize("address", [0, -1, 8, 1 << 62, 1 << 70])
def test_addresses_that_are_none(address: int) -> None:
    with memory_of(os.getpid()) as memory, pytest.raises(Unreadable):
        memory.read(address, 8)
