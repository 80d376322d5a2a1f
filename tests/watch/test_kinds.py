"""Real deaths and hangs of real workers, told apart with proof: under a process pool, and under torch's DataLoader.

Each test is one run of tests/watch/mortal_job.py, which loses its workers one after another.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords import _native
from lastwords.diagnosis import Diagnosis, diagnose
from lastwords.evidence import Evidence
from lastwords.evidence.quantities import size
from lastwords.evidence.store import Store
from lastwords.show.json import document
from tests.watch.mortal_job import DEADLY, LEAK
from tests.watch.running import clean_environment, leftovers, run_words, soon

JOB = Path(__file__).with_name("mortal_job.py")
ENGINES = ["pool", pytest.param("dataloader", marks=[pytest.mark.heavy, pytest.mark.slow])]
PATIENCE = 110
AFTER = 1.0
SOON = 2.0
"""Seconds after the time-out, within which a hang must have been explained."""
MIB = 1 << 20


def lose(
    home: Path, engine: str, deaths: list[str], *options: str, count: int | None = None, **variables: str
) -> tuple[list[Diagnosis], str]:
    """What was said of each, in the order in which they died, and all that the job printed."""
    if engine == "dataloader":
        pytest.importorskip("torch")
    done = subprocess.run(
        run_words(home, [sys.executable, str(JOB), engine, *deaths], *options),
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    found = sorted(Store(home).all(), key=lambda one: one.time or 0.0)
    assert len(found) == (count or len(deaths)), done.stdout + done.stderr
    assert leftovers(home) == []
    return [diagnose(one) for one in found], done.stdout


def best(found: Diagnosis) -> str | None:
    return found.best.id if found.best else None


def line_of(name: str) -> int:
    lines = JOB.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"# it stands here: {name}" in line)


def stands_at(evidence: Evidence, name: str) -> bool:
    frames = evidence.python_stack.frames if evidence.python_stack else ()
    # A loop without a body stands now on one of its lines, now on the other.
    lines = {line_of(name), line_of(name) - (name == "spin")}
    return bool(frames) and frames[0].file == str(JOB) and frames[0].line in lines


def explained_after(home: Path, evidence: Evidence) -> float:
    """Seconds from the time-out to the moment when all that is known of the hang was written down."""
    assert evidence.hang is not None and evidence.time is not None
    written = (Store(home).directory / evidence.id / "evidence.json").stat().st_mtime
    return evidence.hang.seconds - AFTER + written - evidence.time


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_hangs(tmp_path: Path, engine: str) -> None:
    calls = {
        "sleep": "clock_nanosleep",
        "socket": "recvfrom",
        "spin": "running",
        "mutex": "futex",
        "lock": "futex",
    }
    told, said = lose(tmp_path / "home", engine, [*calls], "--hang-after", str(AFTER), "--kill-hung")
    found = dict(zip(calls, told, strict=True))
    for name, call in calls.items():
        evidence, hang = found[name].evidence, found[name].evidence.hang
        assert hang is not None and hang.answered, name
        assert evidence.item is not None and evidence.item.index == DEADLY, name
        assert stands_at(evidence, name), (name, evidence.python_stack)
        assert hang.blocked_in == call, name
        assert hang.seconds >= AFTER and explained_after(tmp_path / "home", evidence) < soon(SOON), name
        assert f"{name} " in said
    assert [best(found[name]) for name in ("sleep", "socket")] == ["hang", "hang"]
    assert [best(found[name]) for name in ("mutex", "lock")] == ["fork-deadlock", "fork-deadlock"]
    starved = found["spin"].evidence.hang
    assert starved is not None and starved.waited is not None and starved.ran is not None
    assert best(found["spin"]) == ("cpu-starvation" if starved.waited > 0.8 else "hang")
    assert starved.ran + starved.waited > 0.5, "it never sleeps"


@pytest.mark.parametrize("engine", ENGINES)
def test_kills_and_exits(tmp_path: Path, engine: str) -> None:
    deaths = {
        "kill": "external-kill",
        "term": "external-kill",
        "exit-3": "worker-exit",
        "exit-0": "worker-exit",
    }
    told, said = lose(tmp_path / "home", engine, [*deaths])
    found = dict(zip(deaths, told, strict=True))
    assert {name: best(one) for name, one in found.items()} == deaths
    statuses = {name: one.evidence.status for name, one in found.items()}
    ends = {name: (one.signal, one.exit_code) for name, one in statuses.items() if one is not None}
    expected = {
        "kill": ("SIGKILL", None),
        "term": ("SIGTERM", None),
        "exit-3": (None, 3),
        "exit-0": (None, 0),
    }
    assert ends == {name: expected[name] for name in deaths}
    assert all(one.evidence.item and one.evidence.item.index == DEADLY for one in found.values())
    if engine == "dataloader":  # its own waiter has not lost the status to us
        codes = {
            line.split()[0]: line.rpartition("exit codes ")[2] for line in said.splitlines() if line.strip()
        }
        assert codes == {"kill": "[-9]", "term": "[-15]", "exit-3": "[3]", "exit-0": "[0]"}, said


@pytest.mark.parametrize("engine", ENGINES)
def test_a_parent_that_died_first(tmp_path: Path, engine: str) -> None:
    found = lose(tmp_path / "home", engine, ["parent"], count=2)[0]
    main = next(one for one in found if one.evidence.item is None)
    worker = next(one for one in found if one.evidence.item is not None)
    assert (best(main), best(worker)) == ("external-kill", "parent-died")
    assert main.evidence.status is not None and main.evidence.status.signal == "SIGKILL"
    assert worker.evidence.parent_end is not None and main.evidence.process is not None
    assert worker.evidence.parent_end.pid == main.evidence.process.pid
    told = document(worker).parent_end
    assert told is not None and (told.pid, told.signal) == (main.evidence.process.pid, "SIGKILL")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A real memory group of 200 MiB below our own, of either version."""
    groups = _native.oom_kills(os.getpid())
    if not groups or os.geteuid() != 0:
        pytest.skip("needs root and a memory controller")
    directory, version, _ = groups[0]
    place = Path(directory) / f"lastwords-kinds-{os.getpid()}"
    try:
        place.mkdir()
        (place / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(200 * MIB))
    except OSError:
        pytest.skip("memory groups cannot be made here")
    yield place
    place.rmdir()


@pytest.mark.root
@pytest.mark.parametrize("engine", ENGINES)
def test_a_leak_and_one_huge_item(tmp_path: Path, engine: str, small_group: Path) -> None:
    told, _ = lose(tmp_path / "home", engine, ["huge", "leak"], MORTAL_GROUP=str(small_group))
    found = dict(zip(("huge", "leak"), told, strict=True))
    for name, one in found.items():
        assert best(one) == "out-of-memory", name
        kills = one.evidence.oom_kills
        assert kills is not None and kills.after > kills.before, name
        assert kills.cgroup == str(small_group)
    huge, leak = found["huge"].evidence, found["leak"].evidence
    assert huge.item is not None and huge.item.index == DEADLY
    assert stands_at(huge, "huge"), huge.python_stack
    assert huge.native_stack is not None
    assert huge.memory is not None and huge.memory.on_item is not None and huge.memory.on_item > 80 * MIB
    assert leak.memory is not None and leak.memory.per_item is not None
    assert 0.8 * LEAK < leak.memory.per_item < 1.2 * LEAK
    assert reasons(found["huge"]) >= {f"item {DEADLY} took {size(huge.memory.on_item)} at once"}
    (growth,) = leak.growth or ()
    assert growth.name == "memory" and 0.8 * LEAK < growth.per_item < 1.2 * LEAK and growth.items > 20
    assert (growth.limit, huge.growth) == (200 * MIB, ())
    words = (
        f"it grew {size(int(growth.per_item))} per item over {growth.items} items: a leak, not one big item"
    )
    assert words in reasons(found["leak"])


def reasons(found: Diagnosis) -> set[str]:
    return {term.text for term in found.best.terms} if found.best else set()


MEMORY_ERROR = "rlimit"


@pytest.mark.parametrize("engine", ENGINES)
def test_an_allocation_that_the_process_s_own_limit_refuses(tmp_path: Path, engine: str) -> None:
    """The worker lives, and the job dies of its MemoryError."""
    ((found,), _) = lose(tmp_path / "home", engine, [MEMORY_ERROR])
    assert best(found) == "out-of-memory"
    assert found.best is not None and "rlimit" in str(found.best.facts["limit"])
    assert found.evidence.item is not None and found.evidence.item.index == DEADLY


@pytest.mark.parametrize("engine", ENGINES)
def test_an_allocation_in_c_plus_plus_that_the_limit_refuses(tmp_path: Path, engine: str) -> None:
    """The worker dies of std::bad_alloc, which nothing catches: where it is thrown, and with C++'s own words. Above it
    there are frames of ours, and a catch of Rust's would take it, unwind the stack and abort instead.
    """
    if ctypes.util.find_library("stdc++") is None:
        pytest.skip("there is no libstdc++ here")
    ((found,), _) = lose(tmp_path / "home", engine, ["bad-alloc"])
    evidence = found.evidence
    assert best(found) == "native-abort"
    assert found.best is not None and found.best.facts["kind"] in ("bad-alloc", "cpp-exception")
    assert evidence.status is not None and evidence.status.signal == "SIGABRT"
    assert evidence.item is not None and evidence.item.index == DEADLY
    assert stands_at(evidence, "bad-alloc"), evidence.python_stack
    functions = (
        [frame.function or "" for frame in evidence.native_stack.frames] if evidence.native_stack else []
    )
    assert any("__cxa_throw" in one or "terminate" in one for one in functions), functions
