"""What jobs leave behind: named only where it is proven to be theirs, and removed only if nobody uses it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lastwords.watch import cleaning, run_directory
from lastwords.watch.leftovers import Leftover, Leftovers
from lastwords.watch.proc import started
from lastwords.watch.processes import Process
from lastwords.watch.run_directory import files_in
from tests.watch.running import LASTWORDS, clean_environment, python, run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "shm"
    made.mkdir()
    monkeypatch.setattr(run_directory, "SHARED_MEMORY", str(made))
    return made


@contextmanager
def child(program: str) -> Iterator[Process]:
    """Says a word when it is ready, and ends when its standard input does."""
    whole = f"{program}\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen(python(whole), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield Process(pid=process.pid, own_pid=process.pid, started=started(process.pid))
        process.communicate("\n")


def names(found: list[Leftover]) -> set[str]:
    return {Path(one.name).name for one in found}


def test_a_file_that_a_process_of_the_job_had_open(place: Path) -> None:
    watched = Leftovers({}, str(place))
    with child(f"file = open('{place}/psm_1', 'w')") as process:
        watched.begin(process)
        watched.look([process])
        assert watched.found([process])[0].kind == "process", "it is in use, and the process is there"
    (one,) = watched.found()
    assert (one.name, one.kind, one.pid) == (f"{place}/psm_1", "shared memory", process.pid)
    assert f"pid {process.pid} of this job had it open" in one.proof


def test_a_name_with_the_number_of_a_process_of_the_job(place: Path) -> None:
    watched = Leftovers({}, str(place))
    with child("") as process:
        watched.begin(process)
        for name in (
            f"torch_{process.pid}_1_0",
            f"sem.loky-{process.pid}-ab",
            "torch_1_1_0",
            f"other_{process.pid}",
        ):
            (place / name).touch()
        (place / f"joblib_memmapping_folder_{process.pid}_x").mkdir()
    found = watched.found()
    assert {Path(one.name).name: one.kind for one in found} == {
        f"torch_{process.pid}_1_0": "shared memory",
        f"sem.loky-{process.pid}-ab": "semaphore",
        f"joblib_memmapping_folder_{process.pid}_x": "folder",
    }
    assert [cleaning.remove(one) for one in found] == [None, None, None]
    assert sorted(path.name for path in place.iterdir()) == [f"other_{process.pid}", "torch_1_1_0"]


def test_what_was_there_before_is_not_the_job_s(place: Path) -> None:
    with child("") as process:
        old = place / f"torch_{process.pid}_1_0"
        old.touch()
        watched = Leftovers(dict(files_in(str(place))), str(place))
        watched.begin(process)
        assert names(watched.found()) == set()
        old.unlink()
        (place / "keeps the inode in use").touch()
        old.touch()  # the same name, and another file
        assert names(watched.found()) == {old.name}


def test_a_file_older_than_the_process_is_somebody_else_s(place: Path) -> None:
    """The number was used before."""
    watched = Leftovers({}, str(place))
    process = Process(pid=os.getpid(), own_pid=os.getpid(), announced=os.stat(place).st_ctime + 3600)
    (place / f"torch_{process.pid}_1_0").touch()
    watched.begin(process)
    assert watched.found() == []


def test_what_somebody_uses_stays(place: Path) -> None:
    watched = Leftovers({}, str(place))
    with child(f"file = open('{place}/psm_1', 'w+')") as process, child(f"file = open('{place}/psm_1')"):
        watched.begin(process)
        watched.look([process])
        (one,) = watched.found()
        assert cleaning.remove(one) == "a process uses it"
    assert cleaning.remove(one) is None
    assert cleaning.remove(one) is None, "what is gone is gone"
    assert list(place.iterdir()) == []


def test_another_file_of_the_same_name_is_not_touched(place: Path) -> None:
    path = place / "psm_1"
    path.touch()
    one = Leftover("shared memory", str(path), 0, "", 1, device=1, inode=1)
    assert cleaning.remove(one) is None
    assert path.exists()


def test_a_note_that_names_a_file_elsewhere(tmp_path: Path, place: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.touch()
    status = path.stat()
    one = Leftover("shared memory", str(path), 0, "", 1, device=status.st_dev, inode=status.st_ino)
    assert cleaning.remove(one) == "it is not where jobs leave things"
    assert path.exists() and place.exists()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"kind": 1}]', "\0" * 100])
def test_notes_that_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "leftovers").mkdir()
    (tmp_path / "leftovers" / "1.json").write_text(content)
    assert [note.leftovers for note in cleaning.notes(str(tmp_path)) if note.leftovers] == []


def test_a_segment_of_system_v(place: Path) -> None:
    libc = ctypes.CDLL(None)
    watched = Leftovers({}, str(place))
    number = libc.shmget(0, 4096, 0o1600)
    if number < 0:
        pytest.skip("no System V shared memory here")
    watched.begin(Process(pid=os.getpid(), own_pid=os.getpid()))
    try:
        (one,) = watched.found()
        assert (one.kind, one.name, one.size) == ("segment", str(number), 4096)
        assert cleaning.remove(one) is None
        assert watched.found() == []
    finally:
        libc.shmctl(number, 0, None)


def clean(home: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    words = [*LASTWORDS, "--home", str(home), "clean", "--json", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean_environment())
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_a_job_that_leaves_a_file_and_a_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = """
        import os, signal, subprocess, sys
        name = f"/dev/shm/torch_{os.getpid()}_1_0"
        with open(name, "w") as file:
            file.write("x" * 100)
        print(name, flush=True)
        program = "import signal; print('ready', flush=True); signal.pause()"
        stays = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        stays.stdout.readline()
        print(stays.pid, flush=True)
        os._exit(0)
    """
    done = run(home, python(program))
    name, pid = done.stdout.split()
    try:
        assert f"left behind in shared memory: something, 100 bytes: {name} · to remove: " in done.stderr
        assert f"still running, and no longer watched: pid {pid}" in done.stderr
        status, found = clean(home, "--dry-run")
        assert (status, {one["outcome"] for one in found}) == (1, {"is there"})
        status, found = clean(home)
        outcomes = {one["kind"]: one["outcome"] for one in found}
        assert (status, outcomes) == (
            1,
            {"shared memory": "removed", "process": "still running: --processes ends it"},
        )
        assert not Path(name).exists()
        status, found = clean(home, "--processes")
        assert (status, [one["outcome"] for one in found]) == (0, ["removed"])
        assert clean(home) == (0, [])
    finally:
        _end(int(pid))
        Path(name).unlink(missing_ok=True)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_a_tidy_job_leaves_nothing_and_no_word(tmp_path: Path) -> None:
    program = """
        from multiprocessing import shared_memory
        memory = shared_memory.SharedMemory(create=True, size=4096)
        memory.close()
        memory.unlink()
    """
    done = run(tmp_path / "home", python(program))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "home" / "leftovers").exists()
    assert clean(tmp_path / "home") == (0, [])
