"""Memory over time, of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lastwords import _native
from lastwords.evidence import Evidence
from lastwords.evidence import box as raw
from lastwords.evidence.memory import from_curve
from lastwords.evidence.store import Store
from tests.watch.running import python, run, sampled

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def death(home: Path) -> Evidence:
    (found,) = Store(home).all()
    return found


def died(home: Path, program: str) -> Evidence:
    done = run(home, sampled(program))
    assert done.returncode == -signal.SIGKILL, done.stderr
    return death(home)


QUICK = """
    import mmap, os, signal, time, lastwords
    SIZE = 1 << 30
    taken = mmap.mmap(-1, SIZE)
    looked_at()
    with lastwords.item("huge", index=3):
        begun = time.monotonic()
        page = b"x" * (1 << 20)
        for at in range(0, SIZE, 1 << 20):
            taken[at : at + (1 << 20)] = page
            # No faster than a gigabyte in a tenth of a second, however fast the machine is.
            while time.monotonic() - begun < 0.1 * at / SIZE:
                pass
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_gigabyte_in_a_tenth_of_a_second_leaves_a_curve(home: Path) -> None:
    memory = died(home, QUICK).memory
    assert memory is not None and memory.curve is not None and memory.first is not None
    low, high = memory.first + 32 * MIB, memory.first + 1024 * MIB
    rising = [point for point in memory.curve if low < point.resident < high]
    assert len(rising) >= 5, memory.curve
    assert memory.peak is not None and memory.peak > 600 * MIB


def test_one_huge_item(home: Path) -> None:
    memory = died(
        home,
        """
        import os, signal, time, lastwords
        looked_at()
        for index in range(20):
            with lastwords.item("small", index=index):
                time.sleep(0.005)
        with lastwords.item("huge", index=20):
            taken = bytearray(400 << 20)
            looked_at()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    ).memory
    assert memory is not None and memory.on_item is not None
    assert 350 * MIB < memory.on_item < 450 * MIB
    assert abs(memory.per_item or 0) < MIB


def test_a_leak(home: Path) -> None:
    memory = died(
        home,
        """
        import os, signal, time, lastwords
        kept = []
        looked_at()
        for index in range(40):
            with lastwords.item("small", index=index):
                kept.append(bytearray(6 << 20))
                time.sleep(0.005)
        with lastwords.item("last", index=40):
            looked_at()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    ).memory
    assert memory is not None and memory.per_item is not None and memory.items is not None
    assert 5 * MIB < memory.per_item < 7 * MIB and memory.items >= 30
    assert memory.on_item is not None and memory.on_item < 20 * MIB
    assert memory.resident is not None and memory.first is not None
    assert memory.resident - memory.first > 200 * MIB


def test_what_earlier_items_took_since_the_last_look_is_not_the_last_one_s() -> None:
    """A busy machine: the watcher has looked before ten items and after them, and the recorder has measured each."""
    millisecond = 10**6
    done = tuple(
        raw.DoneItem(
            started_ns=number * 10 * millisecond, duration_ns=8 * millisecond, rss_change_kib=6 << 10
        )
        for number in range(20)
    )
    current = raw.Current(index=20, started_ns=200 * millisecond, phase="run")
    box = raw.Box(items=done, live=raw.Live(current=current, items_done=20))
    points = [(number * millisecond, mib << 10, 0) for number, mib in ((0, 10), (100, 70), (300, 135))]
    memory = from_curve(points, box)
    assert memory is not None and memory.per_item == 6 * MIB
    assert memory.on_item == 5 * MIB, "135 MiB, of which 70 were there at the last look, and 10 items took 60"


def test_a_leak_of_items_too_short_to_be_measured(home: Path) -> None:
    memory = died(
        home,
        """
        import os, signal, time, lastwords
        kept = []
        looked_at()
        for index in range(30):
            with lastwords.item("small", index=index):
                kept.append(b"x" * (1 << 20))
            if index % 5 == 4:
                looked_at()
        with lastwords.item("last", index=40):
            looked_at()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    ).memory
    assert memory is not None and memory.per_item is not None
    assert MIB // 2 < memory.per_item < 2 * MIB


def test_the_sampler_by_itself() -> None:
    sampler = _native.MemorySampler()
    with subprocess.Popen(python("input()"), stdin=subprocess.PIPE) as child:
        pidfd = os.pidfd_open(child.pid)
        assert sampler.add(child.pid, pidfd)
        until = time.monotonic() + 20
        while not sampler.points(child.pid):
            assert time.monotonic() < until
            os.sched_yield()
        child.communicate(b"\n")
    assert not sampler.add(child.pid, pidfd)
    os.close(pidfd)
    points = sampler.remove(child.pid)
    assert points == sorted(points) and all(resident > 0 for _, resident, _ in points)
    assert sampler.remove(child.pid) == []
