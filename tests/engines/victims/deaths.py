"""The ways to end, for jobs of any engine: `die("SIGSEGV")` does it, in the process that calls it.

Jobs import it by its path's folder, so that they look like anybody's own scripts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GROUP = Path("/sys/fs/cgroup/memory/lastwords-test")
ROOM = 64 << 20
"""Bytes that the group has room for beside what the victim holds already."""

ENDINGS = {
    "SIGSEGV": ("died of SIGSEGV", "null-pointer", "sum_values"),
    "SIGILL": ("died of SIGILL", "isa-mismatch", "This CPU cannot run"),
    "SIGKILL": ("was killed by SIGKILL", "external-kill", "no recorded process of the job sent it"),
    "out of memory": (
        "was killed by SIGKILL",
        "out-of-memory 9",
        "oom-kill",
        "The kernel killed it: the memory of",
    ),
    "exit 0": ("ended with exit code 0", "worker-exit", "no signal"),
    "exit 3": ("ended with exit code 3", "worker-exit", "no signal"),
}
"""What must be said of those that end their process, wherever they do: the ending, the cause, its proofs."""


def die(how: str) -> None:
    {
        "nothing": lambda: None,
        "SIGSEGV": lambda: zoo("null-dereference"),
        "SIGILL": lambda: zoo("illegal-instruction"),
        "SIGKILL": killed,
        "out of memory": out_of_memory,  # in a group of its own; "memory": in whatever group it is
        "memory": lambda: zoo("memory-limit"),
        "exit 0": lambda: os._exit(0),
        "exit 3": lambda: os._exit(3),
        "exception": bad_data,
        "hang": lambda: time.sleep(1000),
        "files first": files_first,
    }[how]()


def files_first() -> None:
    """What every death does, so slowly that a parent sees it: the files are closed a while before the process ends."""
    os.closerange(3, 1024)
    time.sleep(0.1)
    os.abort()


def zoo(name: str) -> None:
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    place = ROOT / "zoo" / name / "death.py"
    spec = importlib.util.spec_from_file_location("death", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.die(0)


def killed() -> None:
    subprocess.Popen(["sh", "-c", f"kill -KILL {os.getpid()}"])
    while True:
        signal.pause() if sys.modules["threading"].current_thread() is MAIN else time.sleep(1)


MAIN = __import__("threading").main_thread()


def bad_data() -> None:
    raise ValueError("a value that nobody expected")


def out_of_memory() -> None:
    """In a control group of its own, as a container has it. Swap is no way out."""
    group = GROUP.with_name(f"{GROUP.name}-{os.getpid()}")
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(ROOM))
    (group / "memory.swappiness").write_text("0")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    rows = bytearray()
    while True:
        rows += b"x" * (4 << 20)


def missing(how: str) -> str | None:
    """What this machine lacks for that death, or None."""
    if how == "out of memory" and (os.geteuid() != 0 or not os.access(GROUP.parent, os.W_OK)):
        return "needs root and cgroup v1, to make a group with little memory"
    if how in ("SIGSEGV", "SIGILL"):
        from zoo import keeper

        return keeper.missing({"SIGSEGV": "null-dereference", "SIGILL": "illegal-instruction"}[how])
    return None


def tidy() -> None:
    """The groups of those that died for want of memory."""
    for group in GROUP.parent.glob(f"{GROUP.name}-*"):
        with contextlib.suppress(OSError):
            group.rmdir()
