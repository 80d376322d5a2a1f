"""From what the watcher saw of the machine to facts, and real deaths under `lastwords run` that have them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import lastwords
from lastwords import _native
from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence, Status, from_box, from_status
from lastwords.evidence import box as raw
from lastwords.evidence.machine import facts, with_machine
from lastwords.evidence.memory import from_curve
from lastwords.evidence.store import Store
from lastwords.show.sections import sections
from lastwords.watch import cgroups, gpu, machine
from lastwords.watch.gpu import Gpu
from lastwords.watch.kernel_log import KernelLine, parse
from lastwords.watch.machine import Machine, Pressure
from lastwords.watch.spaces import Space
from tests.watch.running import clean_environment, python, run

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_nothing_can_be_read() -> None:
    found = facts(Machine())
    assert (found.memory_groups, found.pressure, found.limits, found.kernel_log) == (None, None, None, None)
    killed = from_status(Status(source="test", signal="SIGKILL"))
    missing = [one.what for one in with_machine(killed, Machine(kernel_log_refused="no")).missing]
    assert "what the kernel log says about it (no)" in missing
    assert "the memory limit of its control group" in missing


def test_an_exception_misses_no_kernel_log() -> None:
    ended = from_status(Status(source="test", exit_code=1))
    assert with_machine(ended, Machine(kernel_log_refused="no")).missing == ended.missing
    assert with_machine(ended, None) is ended


def test_limits_that_are_set_and_what_was_used() -> None:
    found = facts(
        Machine(
            limits={
                "open files": (1024, 4096),
                "processes": (None, None),
                "address space": (5, 5),
                "nice": (0, 0),
            },
            tasks=cgroups.Tasks("/g", 99, 100),
        ),
        (1020, 12),
    )
    assert found.limits is not None
    assert [(one.name, one.used, one.soft) for one in found.limits] == [
        ("open files", 1020, 1024),
        ("processes", None, None),
        ("address space", None, 5),
        ("threads", 12, None),
        ("tasks of its cgroup", 99, 100),
    ]


def test_it_survives_the_disk() -> None:
    found = Machine(
        kernel_lines=(KernelLine("memory kill", 1, "x", "CONSTRAINT_NONE"),), orchestrator={"A": "b"}
    )
    evidence = Evidence(machine=facts(found))
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence) == evidence


def test_the_whole_account_names_what_was_seen() -> None:
    found = Machine(
        memory_groups=(cgroups.MemoryGroup("/sys/fs/cgroup/job", 200 * MIB, 199 * MIB, 200 * MIB, 17),),
        memory_total=8 << 30,
        memory_available=1 << 30,
        pressure=(Pressure("memory", 40.0, 30.0),),
        throttled=0.87,
        cpu_quota=0.5,
        cpus=2,
        spaces=(Space("/scratch", 0, 64 * MIB, None),),
        kernel_lines=(KernelLine("memory kill", 1, "Killed process 1 (python)"),),
        orchestrator={"SLURM_JOB_ID": "4711"},
    )
    points = [(number * 10**9, 1000 * number, 0) for number in range(1, 20)]
    evidence = with_machine(Evidence(memory=from_curve(points)), found)
    shown = {section.title: section.lines for section in sections(diagnose(evidence))}
    machine = [f"{one.label}: {one.text}" for one in shown["the machine"]]
    assert "kernel log: Killed process 1 (python)" in machine
    assert "/sys/fs/cgroup/job: 209 MB of 210 MB, at most 210 MB, full 17 times" in machine
    assert "memory pressure: some tasks waited 40 % of ten seconds, all tasks 30 %" in machine
    assert "CPUs: 2, its group may use 0.5, not let run 87% of its life" in machine
    assert "/scratch: 0 bytes free of 67.1 MB" in machine
    assert "SLURM_JOB_ID: 4711" in machine
    assert any("▁" in one.text and "█" in one.text for one in shown["its memory"])


def test_a_host_without_memory_is_told_from_a_full_group() -> None:
    """As the kernel wrote it on a machine that had none left."""
    record = (
        "6,1203,98230115,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/user.slice,task=python,pid=4711,uid=1000"
    )
    line = parse(record)
    assert line is not None
    killed = from_status(Status(source="test", signal="SIGKILL"))
    found = diagnose(with_machine(killed, Machine(kernel_lines=(line,)))).best
    assert found is not None and (found.id, found.facts["limit"]) == ("out-of-memory", "host")
    assert found.sentence == "The kernel killed it: the whole machine was out of memory."


def test_a_recorded_kernel_log_tells_of_a_host_without_memory() -> None:
    log = (
        "[98230.115] python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0\n"
        "[98230.116] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/user.slice,task=python,pid=4711,uid=1000\n"
        "[98230.117] Out of memory: Killed process 4711 (python) total-vm:33018020kB, anon-rss:31457280kB\n"
    )
    found = lastwords.explain(log).best
    assert found is not None and (found.id, found.facts["limit"]) == ("out-of-memory", "host")


def test_gpus_are_told_where_there_are_some() -> None:
    found = Machine(gpus=(Gpu(0, "NVIDIA H200", 150 << 30, 75 << 30, 0.87, 45, 2), Gpu(1)))
    evidence = with_machine(Evidence(), found)
    assert evidence.machine is not None and evidence.machine.gpus is not None
    shown = {section.title: section.lines for section in sections(diagnose(evidence))}
    lines = [f"{one.label}: {one.text}" for one in shown["the machine"]]
    assert (
        "GPU 0: NVIDIA H200, 80.5 GB of 161 GB used, 87% busy, 45 °C, 2 memory errors that were not corrected"
        in lines
    )
    assert "GPU 1: does not answer" in lines


def test_a_machine_without_a_gpu_driver_has_none() -> None:
    if os.path.exists(gpu.DRIVER):
        found = gpu.look()
        assert found and all(one.memory_total for one in found)
    else:
        assert gpu.look() is None


def test_steal_is_the_host_s_part_of_the_time() -> None:
    assert machine.stolen((1000, 10), (2000, 510)) == 0.5
    assert machine.stolen(None, (1, 1)) is None
    assert machine.stolen((1000, 10), (1000, 10)) is None
    found = facts(Machine(stolen=0.5, cpus=2))
    assert found.cpu is not None and found.cpu.stolen == 0.5


def test_a_clock_that_was_set_does_not_change_how_long_an_item_took(home: Path) -> None:
    run(home, python("import lastwords, os\nwith lastwords.item('a', index=1):\n    os.kill(os.getpid(), 9)"))
    (found,) = Store(home).all()
    box = Store(home).box_of(found.id)
    assert box is not None and found.item is not None and found.item.seconds is not None
    live = raw.read(box).live
    assert live is not None and live.current is not None and live.current.started_ns is not None
    moved = from_box(box, time=(found.time or 0) - 86400, died_ns=live.current.started_ns + 10**9)
    assert moved.item is not None and moved.item.seconds == 1.0


# The watcher samples whoever it has heard of: once its thread for that is there, it has counted the files.
KILLED = """
    import os, signal, lastwords
    from pathlib import Path
    files = [open(os.devnull) for _ in range(50)]
    tasks = Path(f"/proc/{os.getppid()}/task")
    while not any("lastwords-samp" in name.read_text() for name in tasks.glob("*/comm")):
        os.sched_yield()
    with lastwords.item("a", index=1):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_real_death_has_the_machine(home: Path) -> None:
    secret = {"AWS_SECRET_ACCESS_KEY": "swordfish", "SLURM_JOB_ID": "4711"}
    run(home, python(KILLED), env=clean_environment(**secret))
    (found,) = Store(home).all()
    machine = found.machine
    assert machine is not None and machine.place is not None and machine.limits is not None
    assert machine.place.orchestrator == {"SLURM_JOB_ID": "4711"}
    assert machine.spaces and machine.memory is not None and machine.memory.total
    files = next(one for one in machine.limits if one.name == "open files")
    assert files.soft is not None and (files.used is None or files.used < files.soft)
    assert b"swordfish" not in msgspec.json.encode(found)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A real memory group of 200 MiB below our own, of either version."""
    groups = _native.oom_kills(os.getpid())
    if not groups or os.geteuid() != 0:
        pytest.skip("needs root and a memory controller")
    directory, version, _ = groups[0]
    place = Path(directory) / f"lastwords-facts-{os.getpid()}"
    try:
        place.mkdir()
        limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
        (place / limit).write_text(str(200 * MIB))
    except OSError:
        pytest.skip("memory groups cannot be made here")
    yield place
    place.rmdir()


# Nobody hears of the worker: the socket to tell it on is gone. Its box remembers where it was.
UNHEARD = """
    import os, signal, sys, lastwords
    os.unlink(os.path.join(os.environ["LASTWORDS"], "watcher"))
    open(sys.argv[1] + "/cgroup.procs", "w").write("0")
    pid = os.fork()
    if pid == 0:
        with lastwords.item("a", index=1):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@pytest.mark.root
def test_the_groups_of_one_that_died_before_anybody_looked(home: Path, small_group: Path) -> None:
    done = run(home, python(UNHEARD, str(small_group)))
    assert done.returncode == 0, done.stderr
    (found,) = Store(home).all()
    assert found.item is not None and found.item.index == 1
    machine = found.machine
    assert machine is not None and machine.memory_groups is not None and machine.place is not None
    assert (machine.memory_groups[0].path, machine.memory_groups[0].limit) == (str(small_group), 200 * MIB)
    assert machine.place.cgroup is not None and machine.place.cgroup.endswith(small_group.name)


def test_a_box_names_the_groups_that_it_was_born_into(home: Path) -> None:
    run(home, python("import lastwords, os\nwith lastwords.item('a', index=1):\n    os.kill(os.getpid(), 9)"))
    (found,) = Store(home).all()
    box = Store(home).box_of(found.id)
    assert box is not None
    identity = json.loads(_native.read_box(str(box)))["identity"]
    mine = Path("/proc/self/cgroup").read_text().splitlines()
    told = (identity["cgroup"] or "").splitlines()
    assert set(told) <= set(mine)
    wanted = {"memory", "cpu", "pids", ""}
    assert len(told) == sum(bool(wanted & set(line.split(":")[1].split(","))) for line in mine)
    assert identity["cgroup_namespace"] == os.stat("/proc/self/ns/cgroup").st_ino


# The worker begins when the watcher has a descriptor of it: on a busy machine it might be dead before.
POOL = """
import concurrent.futures, multiprocessing, os, sys, time
from pathlib import Path
kept = []
def work(index):
    size = int(sys.argv[2]) if sys.argv[1] == "leak" else (400 << 20 if index == 20 else 1000)
    kept.append(bytearray(size))
    time.sleep(0.02)
def is_known(watcher):
    try:
        infos = [info.read_text() for info in Path(f"/proc/{watcher}/fdinfo").iterdir()]
    except FileNotFoundError:  # one was closed meanwhile
        return False
    return any(f"Pid:\\t{os.getpid()}\\n" in info for info in infos)
def begin(group, watcher):
    open(group + "/cgroup.procs", "w").write("0")
    while not is_known(watcher):
        time.sleep(0.001)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, context, begin, (sys.argv[3], os.getppid())) as pool:
        list(pool.map(work, range(200)))
"""


@pytest.mark.root
@pytest.mark.parametrize("kind", ["leak", "huge"])
def test_a_pool_worker_that_the_kernel_kills_for_memory(
    home: Path, tmp_path: Path, small_group: Path, kind: str
) -> None:
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    done = run(home, [sys.executable, str(script), kind, str(6 * MIB), str(small_group)])
    assert done.returncode == 1
    (found,) = Store(home).all()
    assert found.status is not None and found.status.signal == signal.SIGKILL.name
    assert found.oom_kills is not None and found.oom_kills.after > found.oom_kills.before, found.oom_kills
    assert found.machine is not None and found.machine.memory_groups is not None
    group = found.machine.memory_groups[0]
    assert (group.path, group.limit) == (str(small_group), 200 * MIB)
    assert group.failures is None or group.failures > 0
    memory = found.memory
    assert memory is not None and memory.curve and memory.on_item is not None and memory.per_item is not None
    assert memory.peak is not None and memory.peak > 100 * MIB
    if kind == "leak":
        assert 5 * MIB < memory.per_item < 7 * MIB and memory.on_item < 30 * MIB
    else:
        assert memory.per_item < MIB and memory.on_item > 80 * MIB and found.item is not None
        # It was asked while it grew, when the group was nearly full: on this item, so its line is known.
        assert found.python_stack is not None and found.python_stack.is_exact, found.python_stack
        inner = found.python_stack.frames[0]
        assert (inner.function, inner.code) == ("work", "kept.append(bytearray(size))")
        assert found.native_stack is not None
    if found.machine.kernel_log:
        assert any(line.kind == "memory kill" for line in found.machine.kernel_log)
