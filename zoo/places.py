"""Places in which some animals die: a machine or a container with little of something.

`python -m zoo.places NAME COMMAND...` makes the place, runs the command in it, cleans up, and ends as it ended.
Each is the real thing (a control group, a mount, a system-call filter) around the whole job, as a container is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
SMALL_MEMORY = 1536 << 20
"""torch alone takes half a gigabyte in each process."""
LITTLE_MEMORY = 256 << 20
"""Enough for jobs without torch, and soon full."""
SMALL_SPACE = "size=8m"
FEW_TASKS = 64
FEW_FILES = 256
DISK = "ZOO_DISK"
"""Names the directory that is a small disk, for the victim."""

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_KILL, SECCOMP_TRAP, SECCOMP_ALLOW = 0x80000000, 0x00030000, 0x7FFF0000
KEYCTL = {"x86_64": 250, "aarch64": 219}
"""A call that Docker's own profile refuses too: it reads the keys that the kernel keeps."""

libc = ctypes.CDLL(None, use_errno=True)


def missing(name: str) -> str | None:
    """What this machine lacks to make that place, or None."""
    if name not in PLACES:
        return f"a place that is not there: {name}"
    if name in NEEDS_ROOT and os.geteuid() != 0:
        return "root, to make a place with little of something"
    group = GROUPS.get(name)
    if group is not None and not os.access(group, os.W_OK):
        return f"a cgroup v1 controller in {group}"
    if name.startswith("forbidden") and platform.machine() not in KEYCTL:
        return f"a processor whose number of keyctl is known, this is {platform.machine()}"
    return None


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _own_mounts() -> None:
    _checked(libc.unshare(CLONE_NEWNS), "unshare")
    _checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount / private")


def _small(directory: str) -> None:
    _checked(libc.mount(b"tmpfs", directory.encode(), b"tmpfs", 0, SMALL_SPACE.encode()), "mount tmpfs")


@contextlib.contextmanager
def small_shared_memory() -> Iterator[None]:
    """A container's /dev/shm."""
    _own_mounts()
    _small("/dev/shm")
    yield


@contextlib.contextmanager
def small_disk() -> Iterator[None]:
    _own_mounts()
    directory = tempfile.mkdtemp(prefix="zoo-disk-")
    try:
        _small(directory)
        os.environ[DISK] = directory
        yield
        libc.umount2(directory.encode(), 0)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _group(controller: Path, limits: Mapping[str, int]) -> Iterator[None]:
    group = controller / f"zoo-{os.getpid()}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name).write_text(str(value))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (controller / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # somebody still lives in it; it goes with the machine
            group.rmdir()


def small_memory() -> contextlib.AbstractContextManager[None]:
    return _group(GROUPS["small-memory"], {"memory.limit_in_bytes": SMALL_MEMORY})


def little_memory() -> contextlib.AbstractContextManager[None]:
    return _group(GROUPS["little-memory"], {"memory.limit_in_bytes": LITTLE_MEMORY})


def few_tasks() -> contextlib.AbstractContextManager[None]:
    return _group(GROUPS["few-tasks"], {"pids.max": FEW_TASKS})


@contextlib.contextmanager
def few_files() -> Iterator[None]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
    yield


def _filter(action: int) -> bytes:
    """Load the call's number; the one that is forbidden gets `action`, all others pass."""
    instruction = struct.Struct("HBBI")
    return b"".join((
        instruction.pack(0x20, 0, 0, 0),
        instruction.pack(0x15, 0, 1, KEYCTL[platform.machine()]),
        instruction.pack(0x06, 0, 0, action),
        instruction.pack(0x06, 0, 0, SECCOMP_ALLOW),
    ))  # fmt: skip


@contextlib.contextmanager
def _forbidden(action: int) -> Iterator[None]:
    code = ctypes.create_string_buffer(_filter(action))
    program = ctypes.create_string_buffer(struct.pack("H6xP", len(code) // 8, ctypes.addressof(code)))
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")
    yield


PLACES: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "small-shared-memory": small_shared_memory,
    "small-disk": small_disk,
    "small-memory": small_memory,
    "little-memory": little_memory,
    "few-tasks": few_tasks,
    "few-files": few_files,
    "forbidden-call": lambda: _forbidden(SECCOMP_KILL),
    "forbidden-call-with-trap": lambda: _forbidden(SECCOMP_TRAP),
}
GROUPS = {
    "small-memory": Path("/sys/fs/cgroup/memory"),
    "little-memory": Path("/sys/fs/cgroup/memory"),
    "few-tasks": Path("/sys/fs/cgroup/pids"),
}
NEEDS_ROOT = {"small-shared-memory", "small-disk", *GROUPS}


def main() -> int:
    _, name, *command = sys.argv
    with PLACES[name]():
        code = subprocess.run(command, check=False).returncode
    if code < 0:  # whoever waits for us shall see the same signal
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
