"""After each test nothing is left: no process, no descriptor, no mapping, no thread, no box."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pytest

PR_GET_CHILD_SUBREAPER = 37
PATIENCE = 20


def children() -> set[int]:
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            found.update(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
        except OSError:  # noqa: PERF203  # it may end while we look
            continue
    # Both belong to the whole process and stay until it ends.
    known = {
        getattr(forkserver._forkserver, "_forkserver_pid", None),
        getattr(resource_tracker._resource_tracker, "_pid", None),
    }
    return found - {pid for pid in known if pid is not None}


def descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # noqa: PERF203  # it may end while we look
            continue
    return found


def shared_memory_files() -> list[str]:
    """Of ours, as torch names them: other jobs of the machine, and whoever runs `lastwords run` beside us, have some."""
    ours = re.compile(rf"(?<!\d){os.getpid()}(?!\d)")
    # Intel's OpenMP names its file by the pid as well, and one whose process was aborted stays for the next with that pid.
    return [
        name
        for name in os.listdir("/dev/shm")
        if ours.search(name) and not name.startswith("__KMP_REGISTERED_LIB_")
    ]


def arenas() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:lastwords-worker")


def is_subreaper() -> bool:
    """As tests of `lastwords run` and doctor make this process: it inherits the orphans of its children."""
    answer = ctypes.c_int()
    return ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer)) == 0 and answer.value != 0


def bury_orphans(others: set[int]) -> None:
    """Helpers of multiprocessing in a child of ours, which end a moment after it. One that stays is a leak all the same."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and (left := children() - others):
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LASTWORDS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LASTWORDS", raising=False)
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def nothing_is_left(home: Path) -> Iterator[None]:
    gc.collect()
    threads, before, others = set(threading.enumerate()), descriptors(), children()
    yield
    gc.collect()
    if is_subreaper():
        bury_orphans(others)
    assert children() <= others  # an engine that other tests use may live on beside us
    assert set(threading.enumerate()) - threads == set()
    opened = {name: what for name, what in descriptors().items() if before.get(name) != what}
    assert {name: what for name, what in opened.items() if not is_of_forkserver(name)} == {}
    assert arenas() == 0
    assert shared_memory_files() == []
    assert list((home / "runs").glob("*")) == []


def is_of_forkserver(descriptor: str) -> bool:
    """It and the resource tracker are started by the first test that needs them."""
    known = {
        getattr(forkserver._forkserver, "_forkserver_alive_fd", None),
        getattr(resource_tracker._resource_tracker, "_fd", None),
    }
    return int(descriptor) in known
