"""What the watcher and the recorder saw decides the same causes that a log does."""

from __future__ import annotations

import pytest

from lastwords.diagnosis import Verdict, diagnose
from lastwords.evidence import Evidence, Status
from lastwords.evidence.model import (
    CpuTime,
    Fault,
    Hang,
    HeldLock,
    KernelLine,
    LimitUse,
    Machine,
    MemoryGroup,
    PythonException,
    PythonFrame,
    Space,
)


def best(evidence: Evidence) -> Verdict:
    diagnosis = diagnose(evidence)
    assert diagnosis.notes == ()
    assert diagnosis.best is not None
    return diagnosis.best


def raised(kind: str, message: str, *files: str) -> Evidence:
    frames = tuple(PythonFrame(file=file, line=3, function="f") for file in files)
    found = PythonException(source="its black box", kind=kind, message=message, frames=frames, fatal=True)
    return Evidence(status=Status(source="parent", exit_code=1), exception=found)


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (raised("OSError", "[Errno 24] Too many open files", "/srv/a.py"), "too-many-open-files"),
        (
            raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", "/srv/a.py"),
            "gpu-out-of-memory",
        ),
        (raised("TypeError", "cannot pickle '_thread.lock' object", "/srv/a.py"), "unpicklable"),
        (raised("MemoryError", "", "/srv/a.py"), "out-of-memory"),
        (
            raised("OSError", "[Errno 28] No space left on device", "multiprocessing/synchronize.py"),
            "shared-memory-full",
        ),
        (raised("ModuleNotFoundError", "No module named 'x'", "/srv/a.py"), "missing-dependency"),
        (raised("ValueError", "bad row", "/srv/a.py"), "python-exception"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_recorded_exception_is_read_like_one_in_a_log(evidence: Evidence, cause: str):
    assert best(evidence).id == cause


def hung(**facts) -> Evidence:
    return Evidence(hang=Hang(source="watch", seconds=90, limit=30, **facts))


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (hung(state="S", blocked_in="read"), "hang"),
        (hung(state="D", wait_channel="nfs_wait", answered=False), "io-stall"),
        (
            hung(state="S", blocked_in="openat", file_system="nfs4 a:/b", mount="/b", answered=False),
            "io-stall",
        ),
        (hung(state="D", blocked_in="read", blocked_on="/b/c"), "hang"),
        (hung(state="R", ran=0.2, waited=0.6, throttled=0.7, quota=0.2), "cpu-starvation"),
        (hung(state="R", ran=0.2, waited=0.7, throttled=0.4, quota=0.2), "cpu-starvation"),
        (hung(state="S", blocked_in="read", ran=0.0, waited=0.0, throttled=0.9, quota=0.2), "hang"),
        (hung(state="R", waited=0.9), "cpu-starvation"),
        (hung(state="S", lock=HeldLock(address=1, owner=77, owner_is_here=False)), "fork-deadlock"),
        (hung(state="S", lock=HeldLock(address=1, owner=77, owner_is_here=True)), "hang"),
    ],
    ids=[
        "waits",
        "disk",
        "server",
        "slow-disk",
        "throttled",
        "throttled-and-busy",
        "sleeps-while-throttled",
        "no-cpu",
        "lock-left-behind",
        "lock",
    ],
)
def test_a_hang(evidence: Evidence, cause: str):
    assert best(evidence).id == cause


KILLED = Status(source="pidfd", signal="SIGKILL")


def test_the_kernels_line_about_a_kill_for_memory():
    line = KernelLine(source="kernel log", kind="memory kill", text="oom-kill: task=python,pid=7")
    assert best(Evidence(status=KILLED, machine=Machine(kernel_log=(line,)))).id == "out-of-memory"


def test_a_full_group_makes_it_likely():
    group = MemoryGroup(source="cgroup", path="/train", limit=1000, used=995)
    assert best(Evidence(status=KILLED, machine=Machine(memory_groups=(group,)))).id == "out-of-memory"


def test_sigbus_in_shared_memory_that_is_full():
    fault = Fault(
        source="box",
        signal="SIGBUS",
        code=2,
        code_name="BUS_ADRERR",
        address=1 << 40,
        address_in="/dev/shm/x",
    )
    space = Space(source="statvfs", path="/dev/shm", free=0, total=64 << 20)
    evidence = Evidence(
        status=Status(source="parent", signal="SIGBUS"), fault=fault, machine=Machine(spaces=(space,))
    )
    assert best(evidence).id == "shared-memory-full"


def test_sigbus_in_a_file_that_is_shorter_now():
    fault = Fault(
        source="box", signal="SIGBUS", code=2, code_name="BUS_ADRERR", address=1 << 40,
        address_in="/data/a.bin", address_offset=8192, file_size=4096,
    )  # fmt: skip
    assert best(Evidence(status=Status(source="parent", signal="SIGBUS"), fault=fault)).id == "file-truncated"


def test_a_limit_alone_is_a_hint_and_no_claim():
    limit = LimitUse(source="limits", name="open files", used=1024, soft=1024)
    machine = Machine(limits=(limit,), cpu=CpuTime(source="cgroup", throttled=0.1))
    verdicts = diagnose(Evidence(status=KILLED, machine=machine)).verdicts
    assert next(one for one in verdicts if one.id == "too-many-open-files").confidence < 0.5
