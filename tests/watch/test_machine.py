"""The machine at death: each answer from real files, and each that cannot be had."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from lastwords.watch import cgroups, kernel_log, machine
from lastwords.watch.kernel_log import KernelLog, parse
from tests.watch.running import python


def looked(pid: int | None = None) -> machine.Machine:
    number = pid or os.getpid()
    return machine.look(number, machine.begin(number), KernelLog("/nonexistent"))


@pytest.fixture(autouse=True)
def outermost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if we were in the first PID namespace, wherever the tests run."""
    monkeypatch.setattr(kernel_log, "OUTERMOST", os.stat("/proc/self/ns/pid").st_ino)


def test_a_log_with_the_numbers_of_another_namespace_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "OUTERMOST", 1)
    assert KernelLog().refused == "its process numbers are those of the host"


def test_this_machine() -> None:
    found = looked()
    assert found.memory_total is not None and found.memory_available is not None
    assert 0 < found.memory_available <= found.memory_total
    assert found.cpus is not None and found.cpus >= 1
    assert found.limits["open files"] == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert os.getcwd() in {space.path for space in found.spaces}
    assert all(0 <= space.free <= space.total for space in found.spaces)
    assert (found.kernel_lines, found.kernel_log_refused) == (None, "No such file or directory")


def test_limits_are_those_of_the_process_and_not_ours() -> None:
    program = """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))
        print("ready", flush=True)
        input()
    """
    with subprocess.Popen(python(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = machine.begin(child.pid)
        child.communicate(b"\n")
    assert found.limits["open files"] == (123, 456)
    assert found.limits["cpu time"] == (None, None)


def test_a_process_that_is_gone_costs_nothing_but_itself() -> None:
    child = subprocess.Popen(python(""))
    child.wait()
    found = looked(child.pid)
    assert (found.limits, found.cgroup, found.memory_groups, found.tasks) == ({}, None, (), None)
    assert found.memory_total is not None


def test_secrets_stay_where_they_are() -> None:
    environment = {
        "SLURM_JOB_ID": "17",
        "AWS_SECRET_ACCESS_KEY": "x",
        "KUBERNETES_TOKEN": "y",
        "PATH": "/bin",
    }
    assert machine.orchestrator(environment) == {"SLURM_JOB_ID": "17"}
    assert len(machine.orchestrator({"SLURM_JOB_ID": "x" * 9999})["SLURM_JOB_ID"]) <= 200


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", None),
        ("0::/\n", "/"),
        ("0::/kubepods/pod1\n", "/kubepods/pod1"),
        ("9:name=systemd:/\n4:memory:/job:7\n0::/\n", "/job:7"),
        ("4:memory:/\n1:cpu,cpuacct:/docker/abc\n0::/\n", "/docker/abc"),
        ("broken\n1:2\n", None),
    ],
)
def test_the_group_to_name(text: str, path: str | None) -> None:
    assert machine.cgroup_path(text) == path


def group(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def test_memory_groups_of_both_versions(tmp_path: Path) -> None:
    old = group(
        tmp_path / "old",
        memory__limit_in_bytes="1048576\n",
        memory__usage_in_bytes="1044480\n",
        memory__max_usage_in_bytes="1048576\n",
        memory__failcnt="17\n",
    )
    endless = group(
        tmp_path / "endless", memory__limit_in_bytes="9223372036854771712\n", memory__usage_in_bytes="5\n"
    )
    new = group(
        tmp_path / "new",
        memory__max="max\n",
        memory__current="4096\n",
        memory__peak="8192\n",
        memory__events="low 0\nmax 3\noom_kill 1\n",
    )
    memory = ((str(old), 1), (str(endless), 1), (str(new), 2), (str(tmp_path / "gone"), 2))
    assert cgroups.memory(cgroups.Groups(memory, (), ())) == (
        cgroups.MemoryGroup(str(old), 1 << 20, 1044480, 1 << 20, 17),
        cgroups.MemoryGroup(str(endless), None, 5, None, None),
        cgroups.MemoryGroup(str(new), None, 4096, 8192, 3),
    )


def test_throttling_of_both_versions(tmp_path: Path) -> None:
    old = group(
        tmp_path / "old",
        cpu__stat="nr_throttled 5\nthrottled_time 7000\n",
        cpu__cfs_quota_us="50000\n",
        cpu__cfs_period_us="100000\n",
    )
    new = group(tmp_path / "new", cpu__stat="usage_usec 9\nthrottled_usec 7\n", cpu__max="150000 100000\n")
    free = group(tmp_path / "free", cpu__stat="throttled_usec 0\n", cpu__max="max 100000\n")

    def found(*groups: cgroups.Group) -> cgroups.Throttling | None:
        return cgroups.throttling(cgroups.Groups((), groups, ()))

    assert found((str(old), 1)) == cgroups.Throttling(str(old), 7000, 0.5)
    assert found((str(free), 2), (str(new), 2)) == cgroups.Throttling(str(new), 7000, 1.5)
    assert found((str(free), 2)) == cgroups.Throttling(str(free), 0, None)
    assert found((str(tmp_path), 2)) is None


def test_the_group_nearest_to_its_limit_of_tasks(tmp_path: Path) -> None:
    near = group(tmp_path / "near", pids__max="100\n", pids__current="99\n")
    far = group(tmp_path / "far", pids__max="1000\n", pids__current="99\n")
    none = group(tmp_path / "none", pids__max="max\n", pids__current="99\n")
    groups = cgroups.Groups((), (), ((str(far), 2), (str(near), 2), (str(none), 2)))
    assert cgroups.tasks(groups) == cgroups.Tasks(str(near), 99, 100)
    assert cgroups.tasks(cgroups.Groups((), (), ((str(none), 2),))) is None


@pytest.mark.parametrize(
    ("record", "kind", "pid"),
    [
        (
            "3,907,6702244547,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/job/a,task=python,pid=4711,uid=0\n",
            "memory kill",
            4711,
        ),
        (
            "3,9,1,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB",
            "memory kill",
            4711,
        ),
        ("3,9,1,-;Out of memory: Killed process 4711 (a b) total-vm:1kB", "memory kill", 4711),
        (
            "6,9,1,-;pt_data_worker[4711]: segfault at 8 ip 00007f sp 00007f error 4 in x.so[1,2+1]",
            "segfault",
            4711,
        ),
        ("6,9,1,-;traps: python[4711] trap invalid opcode ip:7f sp:7f error:0 in x.so[1+2]", "trap", 4711),
        ("6,9,1,-;traps: a b[4711] general protection fault ip:7f sp:7f error:0 in x.so", "trap", 4711),
    ],
)
def test_lines_of_the_kernel(record: str, kind: str, pid: int) -> None:
    line = parse(record)
    assert line is not None and (line.kind, line.pid) == (kind, pid)
    assert not line.text.startswith("3,")


def test_the_constraint_and_the_group_of_a_memory_kill() -> None:
    line = parse(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/a b,task=python,pid=4711,uid=0"
    )
    assert line is not None and (line.constraint, line.cgroup) == ("CONSTRAINT_NONE", "/a b")


@pytest.mark.parametrize(
    "record", ["", ";", "6,1,1,-;usb 1-1: new device", "x" * 100_000, "6,1;[1]: segfault"]
)
def test_other_lines(record: str) -> None:
    assert parse(record) is None


def test_the_log_of_a_real_fault() -> None:
    log = KernelLog()
    if log.refused is not None:
        pytest.skip("the kernel log cannot be read here")
    child = subprocess.Popen(
        python(
            "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(8)"
        ),
        stderr=subprocess.DEVNULL,
    )
    child.wait()
    found = log.about(child.pid)
    log.close()
    if not found:
        pytest.skip("the kernel writes no line about faults here (another PID namespace, or a limited rate)")
    assert found[0].kind == "segfault" and "segfault at 8" in found[0].text
    assert log.about(child.pid) is None
