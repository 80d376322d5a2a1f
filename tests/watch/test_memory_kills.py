"""Whether a SIGKILL was the kernel's, for want of memory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords import _native
from lastwords.watch import memory_kills
from lastwords.watch.memory_kills import MemoryKillCounters, MemoryKills
from tests.watch.running import python


class Machine:
    """Two groups, one in the other, with counters that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = {"/job/worker": 0, "/job": 2}
        monkeypatch.setattr(_native, "oom_kills", self._all)
        monkeypatch.setattr(_native, "oom_kills_of", lambda _membership: self._all(0))
        monkeypatch.setattr(_native, "oom_kills_in", lambda group, _version: self.counts.get(group))

    def _all(self, _pid: int) -> list[tuple[str, int, int]]:
        return [(group, 2, count) for group, count in self.counts.items()]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture(autouse=True)
def everybody_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_kills, "is_dying", lambda _pid: False)


def test_one_that_was_gone_before_we_looked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken to have been where we are: a kill there counts, and none proves nothing."""
    monkeypatch.setattr(memory_kills, "is_dying", lambda _pid: True)
    counters = MemoryKillCounters()
    counters.begin(1)
    assert counters.end(1) is None
    counters.begin(2)
    machine.counts["/job"] = 3
    assert counters.end(2) == MemoryKills("/job", 2, 3)


def test_one_that_was_gone_and_whose_box_names_its_groups(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then that nothing happened there is known."""
    monkeypatch.setattr(memory_kills, "is_dying", lambda _pid: True)
    counters = MemoryKillCounters()
    counters.begin(1)
    counters.as_born(1, "0::/job/worker\n")
    assert counters.end(1) == MemoryKills("/job/worker", 0, 0)
    counters.as_born(2, "0::/job/worker\n")  # never announced
    machine.counts["/job/worker"] = 1
    assert counters.end(2) == MemoryKills("/job/worker", 0, 1)


def test_a_group_that_nobody_was_seen_in_has_no_counter_from_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_kills, "is_dying", lambda _pid: True)
    counters = MemoryKillCounters()
    counters.begin(1)
    machine.counts = {"/new": 1, **machine.counts}
    counters.as_born(1, "0::/new\n")
    assert counters.end(1) is None


def test_where_it_was_seen_counts_more_than_where_it_was_born(machine: Machine) -> None:
    counters = MemoryKillCounters()
    counters.begin(1)
    machine.counts = {"/born": 5}
    counters.as_born(1, "0::/born\n")
    machine.counts = {"/job/worker": 0}
    assert counters.end(1) == MemoryKills("/job/worker", 0, 0)


def test_nothing_happened(machine: Machine) -> None:
    counters = MemoryKillCounters()
    counters.begin(1)
    assert counters.end(1) == MemoryKills("/job/worker", 0, 0)


def test_the_group_above_was_full(machine: Machine) -> None:
    counters = MemoryKillCounters()
    counters.begin(1)
    machine.counts["/job"] = 3
    assert counters.end(1) == MemoryKills("/job", 2, 3)


def test_one_kill_is_one_death_s(machine: Machine) -> None:
    counters = MemoryKillCounters()
    counters.begin(1)
    counters.begin(2)
    machine.counts["/job/worker"] = 1
    assert counters.end(1) == MemoryKills("/job/worker", 0, 1)
    assert counters.end(2) == MemoryKills("/job/worker", 1, 1)


def test_a_group_that_is_gone_and_a_process_never_seen(machine: Machine) -> None:
    counters = MemoryKillCounters()
    counters.begin(1)
    machine.counts.clear()
    assert counters.end(1) is None
    assert counters.end(77) is None


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A real memory group of 64 MiB below our own, of either version."""
    groups = _native.oom_kills(os.getpid())
    if not groups or os.geteuid() != 0:
        pytest.skip("needs root and a memory controller")
    directory, version, _ = groups[0]
    place = Path(directory) / f"lastwords-test-{os.getpid()}"
    try:
        place.mkdir()
        (place / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(64 << 20))
    except OSError:
        pytest.skip("memory groups cannot be made here")
    yield place
    place.rmdir()


@pytest.mark.root
def test_a_real_kill_for_memory_is_counted(small_group: Path) -> None:
    program = """
        import sys
        print("ready", flush=True)
        input()
        taken = [bytearray(1 << 20) for _ in range(200)]
    """
    with subprocess.Popen(python(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (small_group / "cgroup.procs").write_text(str(child.pid))
        counters = MemoryKillCounters()
        counters.begin(child.pid)
        child.communicate("\n")
    assert child.returncode == -signal.SIGKILL
    assert counters.end(child.pid) == MemoryKills(str(small_group), 0, 1)
