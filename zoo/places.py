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
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from zoo import file_server

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
SMALL_MEMORY = 1536 << 20
"""torch alone takes half a gigabyte in each process."""
LITTLE_MEMORY = 256 << 20
"""Enough for jobs without torch, and soon full."""
SMALL_SPACE = "size=8m"
LITTLE_CPU = 20_000
"""Microseconds of each 100,000: a fifth of one CPU, as `docker run --cpus 0.2` gives it."""
FEW_TASKS = 64
FEW_FILES = 256
DISK = "ZOO_DISK"
"""Names the directory that is a small, slow or dead disk, for the victim."""
LATE = 0.02
"""Seconds: how long a slow disk takes for each part of a file, a hundred times as long as a good one."""
SCHEDULER = "ZOO_SCHEDULER"
"""Names the pipe by which the victim tells the scheduler that it is at work."""
GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL, as Slurm's KillWait and Kubernetes' terminationGracePeriodSeconds have it."""
SHORT_GRACE = 0.5

PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 15, 38, 22, 2
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
    if name in GROUPS and _controller(GROUPS[name][0]) is None:
        return f"a {GROUPS[name][0]} controller in {CGROUPS}, for us to write to"
    if name in DISKS and (refusal := file_server.refusal()):
        return f"a file system of our own making, {refusal}"
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


def _controller(kind: str) -> Path | None:
    """Where groups of that kind can be made: version 1 has a tree for each kind, version 2 one for all."""
    older = CGROUPS / kind
    if older.is_dir():
        return older if os.access(older, os.W_OK) else None
    with contextlib.suppress(OSError):
        is_enabled = kind in (CGROUPS / "cgroup.subtree_control").read_text().split()
        is_known = kind in (CGROUPS / "cgroup.controllers").read_text().split()
        # Any group but the root, which has no type, refuses while processes live in it: ours, in a container.
        can_be_enabled = is_known and not (CGROUPS / "cgroup.type").exists()
        if (is_enabled or can_be_enabled) and os.access(CGROUPS, os.W_OK):
            return CGROUPS
    return None


@contextlib.contextmanager
def _group(name: str) -> Iterator[None]:
    kind, limit = GROUPS[name]
    controller = _controller(kind)
    assert controller is not None
    home, files = controller, LIMITS_V1
    if controller == CGROUPS:
        home = CGROUPS / Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
        files = LIMITS_V2
        (CGROUPS / "cgroup.subtree_control").write_text(f"+{kind}")
    group = controller / f"zoo-{os.getpid()}"
    group.mkdir()
    try:
        (group / files[kind]).write_text(str(limit))
        with contextlib.suppress(OSError):  # no swap, or version 1, where it is not counted by itself
            (group / "memory.swap.max").write_text("0")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # somebody still lives in it; it goes with the machine
            group.rmdir()


@contextlib.contextmanager
def _served_disk(late: float | None) -> Iterator[None]:
    """Its server is a thread of ours, and answers that late, or never."""
    _own_mounts()
    with tempfile.TemporaryDirectory(prefix="zoo-disk-", ignore_cleanup_errors=True) as directory:
        disk = file_server.Mount(Path(directory), late)
        os.environ[DISK] = directory
        try:
            yield
        finally:
            disk.close()


@contextlib.contextmanager
def _scheduler(grace: float) -> Iterator[None]:
    """A parent like Slurm's slurmstepd, with its name: once the job is at work it is told to stop, by SIGTERM. Whoever is
    still there when the time of grace is over is killed.
    """
    _checked(libc.prctl(PR_SET_NAME, b"slurmstepd", 0, 0, 0), "prctl")
    with tempfile.TemporaryDirectory(prefix="zoo-scheduler-") as directory:
        at_work = os.path.join(directory, "at-work")
        os.mkfifo(at_work)
        os.environ |= {SCHEDULER: at_work, "SLURM_JOB_ID": "4711"}
        stopping = threading.Thread(target=_stop_the_job, args=(at_work, grace))
        stopping.start()
        yield
        with contextlib.suppress(
            OSError
        ):  # a job that ended before it was at work: nobody waits for it any more
            os.close(os.open(at_work, os.O_WRONLY | os.O_NONBLOCK))
        stopping.join()


def _stop_the_job(at_work: str, grace: float) -> None:
    with open(at_work, "rb") as said:
        if not said.read():
            return
    ends = {pid: os.pidfd_open(pid) for pid in _below(os.getpid())}
    first = next(iter(ends.values()))
    signal.pidfd_send_signal(first, signal.SIGTERM)
    select.select([first], [], [], grace)
    for end in ends.values():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(end, signal.SIGKILL)
        select.select([end], [], [])


def _below(pid: int) -> Iterator[int]:
    """All processes below it, each before its own."""
    tasks = Path(f"/proc/{pid}/task")
    for children in tasks.glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from _below(child)


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
    "small-memory": lambda: _group("small-memory"),
    "little-memory": lambda: _group("little-memory"),
    "few-tasks": lambda: _group("few-tasks"),
    "little-cpu": lambda: _group("little-cpu"),
    "dead-disk": lambda: _served_disk(late=None),
    "slow-disk": lambda: _served_disk(late=LATE),
    "scheduler": lambda: _scheduler(GRACE),
    "impatient-scheduler": lambda: _scheduler(SHORT_GRACE),
    "few-files": few_files,
    "forbidden-call": lambda: _forbidden(SECCOMP_KILL),
    "forbidden-call-with-trap": lambda: _forbidden(SECCOMP_TRAP),
}
CGROUPS = Path("/sys/fs/cgroup")
GROUPS = {
    "small-memory": ("memory", SMALL_MEMORY),
    "little-memory": ("memory", LITTLE_MEMORY),
    "few-tasks": ("pids", FEW_TASKS),
    "little-cpu": ("cpu", LITTLE_CPU),
}
LIMITS_V1 = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
LIMITS_V2 = {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"}
DISKS = {"dead-disk", "slow-disk"}
NEEDS_ROOT = {"small-shared-memory", "small-disk", *DISKS, *GROUPS}


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
