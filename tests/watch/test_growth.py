"""Slow deaths: what grows from item to item, told with its slope and its limit; and what only jumped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence
from lastwords.evidence import box as raw
from lastwords.evidence.growth import Shared, with_growth
from lastwords.evidence.model import Growth, HostMemory, Machine, MemoryGroup, OomKills, Space, Status
from lastwords.evidence.store import Store
from lastwords.show.json import document
from lastwords.watch.curves import Looks, Points
from lastwords.watch.shared_files import MOST_LOOKS, NewFile, Share, SharedFiles
from tests.watch.running import PATIENCE, clean_environment, python, run, run_words, sampled

SECOND = 10**9
MIB = 1 << 20


def box(items: int, *, done: int | None = None, began: int = 0) -> raw.Box:
    """Items of a second each, of which the last is not done."""
    finished = tuple(
        raw.DoneItem(started_ns=began + number * SECOND, duration_ns=SECOND) for number in range(items)
    )
    current = raw.Current(index=items, started_ns=began + items * SECOND, phase="run")
    live = raw.Live(current=current, items_done=items if done is None else done)
    return raw.Box(items=finished, live=live)


def curve(*kib: int, step: int = SECOND) -> Points:
    return tuple((number * step, level, 0) for number, level in enumerate(kib))


def grown(
    points: Points, record: raw.Box, looks: Looks = (), machine: Machine | None = None
) -> tuple[Growth, ...]:
    found = with_growth(Evidence(machine=machine), record, points, looks).growth
    assert found is not None
    return found


def test_a_leak_has_its_slope_and_its_forecast() -> None:
    group = MemoryGroup(source="", path="/g", limit=200 * MIB, used=100 * MIB)
    machine = Machine(memory_groups=(group,), memory=HostMemory(source="", total=1 << 40))
    points = curve(*(10_000 + 1024 * number for number in range(65)))
    (one,) = grown(points, box(64), machine=machine)
    assert (one.name, one.per_item, one.items, one.per_second) == ("memory", MIB, 64, MIB)
    assert (one.limit, one.seconds_left) == (200 * MIB, 100.0)


def test_one_huge_item_is_no_leak() -> None:
    points = curve(*(10_000 if number < 30 else 900_000 for number in range(65)))
    assert grown(points, box(64)) == ()


def test_the_last_item_s_own_jump_is_not_counted() -> None:
    points = (*curve(*([10_000] * 64)), (64 * SECOND + 5, 900_000, 0))
    assert grown(points, box(64)) == ()


def test_caches_that_fill_are_no_leak() -> None:
    points = curve(*(min(10_000 + 4096 * number, 70_000) for number in range(65)))
    assert grown(points, box(64)) == ()


def test_all_items_of_its_life_are_told_if_it_grew_as_fast_before() -> None:
    """The box remembers 64; it had done 412."""
    points = curve(*(10_000 + 6000 * number for number in range(413)))
    (one,) = grown(points, box(64, done=412, began=348 * SECOND))
    assert (one.items, round(one.per_item / 1024)) == (412, 6000)


def test_items_too_quick_to_be_seen_one_by_one() -> None:
    """64 items of a millisecond, in a life of minutes: nobody looked while these were done."""
    quick = tuple(
        raw.DoneItem(started_ns=60 * SECOND + number * 10**6, duration_ns=10**6) for number in range(64)
    )
    current = raw.Current(index=1, started_ns=60 * SECOND + 64 * 10**6, phase="run")
    record = raw.Box(items=quick, live=raw.Live(current=current, items_done=60_000))
    points = curve(*(10_000 + 100_000 * number for number in range(61)))
    (one,) = grown(points, record)
    assert one.items == 60_000 and 90 * 1024 < one.per_item < 110 * 1024


def test_pages_that_were_shared_and_became_its_own() -> None:
    level = curve(*([500_000] * 65))
    looks = tuple((number * SECOND, 10, 1, 300_000, 10_000 + 2048 * number) for number in range(65))
    (one,) = grown(level, box(64), looks)
    assert (one.name, one.per_item) == ("private memory", 2 * MIB)
    found = diagnose(Evidence(growth=(one,)))
    assert found.best is not None and found.best.id == "memory-leak"
    assert found.best.facts["copy_on_write"] is True


def test_siblings_that_grow_the_same_way() -> None:
    group = MemoryGroup(source="", path="/g", limit=200 * MIB, used=100 * MIB)
    points = curve(*(10_000 + 1024 * number for number in range(65)))
    evidence = with_growth(
        Evidence(machine=Machine(memory_groups=(group,))),
        box(64),
        points,
        (),
        [points, points, curve(5, 5, 5)],
    )
    (one,) = evidence.growth or ()
    assert (one.alike, one.next_death) == (2, 50.0)


def test_shared_memory_that_is_never_given_back() -> None:
    """Its own file and one of four that nobody has open, per item; three others leak the same way."""
    shares = tuple(Share(at * SECOND, at, at * MIB, 4 * at, 4 * at * MIB, 8 * at * MIB) for at in range(65))
    space = Space(source="", path="/dev/shm", free=400 * MIB, total=912 * MIB, free_files=1000)
    evidence = with_growth(
        Evidence(machine=Machine(spaces=(space,))), box(64), curve(*([9_000] * 65)), (), (), Shared(shares, 4)
    )
    files, memory = evidence.growth or ()
    assert (files.name, files.per_item, files.items, files.used) == ("files in /dev/shm", 2, 64, 128)
    assert (memory.name, memory.per_item, memory.limit) == ("shared memory", 2 * MIB, 912 * MIB)
    assert memory.seconds_left == 50.0, "400 MiB are left, and the whole job takes 8 MiB a second"
    bus_error = msgspec.structs.replace(evidence, status=Status(source="", signal="SIGBUS"))
    full = next(one for one in diagnose(bus_error).causes if one.id == "shared-memory-full")
    assert "it left 2.1 MB per item over 64 items in /dev/shm" in [term.text for term in full.terms]
    assert "unlink()" in full.steps[0].text
    kills = OomKills(source="", before=0, after=1)
    killed = msgspec.structs.replace(evidence, status=Status(source="", signal="SIGKILL"), oom_kills=kills)
    best = diagnose(killed).best
    assert best is not None and best.id == "out-of-memory"
    assert any("which counts as memory, too" in term.text for term in best.terms)


def test_shared_memory_that_is_given_back_does_not_grow() -> None:
    shares = tuple(Share(at * SECOND, 3, 3 * MIB, at % 2, MIB, 9 * MIB) for at in range(65))
    found = with_growth(Evidence(), box(64), curve(*([9_000] * 65)), (), (), Shared(shares))
    assert found.growth == ()


def test_shares_are_bounded_and_keep_their_ends() -> None:
    shared = SharedFiles()
    assert not shared.note(0, [], [7])
    assert shared.take(7) == (), "a job without such files pays nothing"
    for at in range(1, 10_000):
        shared.note(at, [NewFile(7, at), NewFile(None, 1)], [7, 8])
    found = shared.take(7)
    assert len(found) <= MOST_LOOKS
    assert (found[0], found[-1]) == (Share(1, 1, 1, 1, 1, 2), Share(9_999, 1, 9_999, 1, 1, 10_000))
    assert [one.files for one in shared.take(8)][-1] == 0
    assert shared.take(8) == ()


@pytest.mark.parametrize(("points", "record"), [((), box(64)), (curve(1, 2), None), (curve(1), box(64))])
def test_nothing_to_say(points: Points, record: raw.Box | None) -> None:
    assert not with_growth(Evidence(), record, points, ()).growth


LEAKS = """
    import ctypes, os, resource, signal, sys, threading, time
    import lastwords
    kept = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (130, 130))
    def leak():
        if sys.argv[1] == "files":
            kept.append(open(os.devnull))
        elif sys.argv[1] == "threads":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
    looked_at()
    for index in range(200 if sys.argv[1] == "files" else 60):
        with lastwords.item(f"item-{index}", index=index):
            leak()
            time.sleep(0.03)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_descriptors_that_are_never_closed(tmp_path: Path) -> None:
    run(tmp_path, sampled(LEAKS, "files"))
    (found,) = Store(tmp_path).all()
    growth = next(one for one in found.growth or () if one.name == "open files")
    assert 0.7 < growth.per_item < 1.3 and growth.items >= 20
    assert growth.limit == 130 and growth.used > 50
    best = diagnose(found).best
    assert best is not None and best.id == "too-many-open-files"
    assert any(f"{growth.per_item:.1f} files more per item" in term.text for term in best.terms)


def test_threads_that_never_end(tmp_path: Path) -> None:
    run(tmp_path, sampled(LEAKS, "threads"))
    (found,) = Store(tmp_path).all()
    growth = next(one for one in found.growth or () if one.name == "threads")
    assert 0.5 < growth.per_item < 1.3 and growth.items >= 20


# Two workers make a file for each item. If they close it at once, nobody can say whose it is.
SHARES = """
    import os, signal, sys, time
    import lastwords
    kept = []
    def leak(name):
        file = open(f"/dev/shm/{name}", "wb", buffering=0)
        file.write(bytes(128 << 10))
        kept.append(file) if sys.argv[1] == "open" else file.close()
    def work(number):
        for index in range(80):
            with lastwords.item(f"item-{index}", index=index):
                leak(f"file-{number}-{index}")
                time.sleep(0.05)
    first = os.fork()
    if first == 0:
        work(1)
        os.kill(os.getpid(), signal.SIGKILL)
    second = os.fork()
    if second == 0:
        work(2)
        os._exit(0)
    os.waitpid(first, 0)
    os.waitpid(second, 0)
"""


def with_shared_memory_of_its_own(words: list[str]) -> list[str]:
    """The files of neighbours come and go; and 64 MiB, as Docker gives them, have an end that can be foreseen."""
    unshare = shutil.which("unshare")
    mount = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    before = [str(unshare), "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if os.geteuid() == 0:
        del before[1:3]
    if unshare is None or subprocess.run([*before, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a /dev/shm of its own (root, or user namespaces)")
    return [*before, *words]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["open", "closed"])
def test_files_of_shared_memory_that_are_never_removed(tmp_path: Path, kind: str) -> None:
    words = with_shared_memory_of_its_own(run_words(tmp_path, python(SHARES, kind)))
    done = subprocess.run(
        words, env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = Store(tmp_path).all()
    growth = {one.name: one for one in found.growth or ()}
    files, memory = growth["files in /dev/shm"], growth["shared memory"]
    assert 0.7 < files.per_item < 1.4 and files.items >= 20
    assert 0.7 * (128 << 10) < memory.per_item < 1.4 * (128 << 10)
    assert memory.limit == 64 * MIB and memory.seconds_left is not None and memory.seconds_left > 0
    assert ("open files" in growth) == (kind == "open")
    told = {one.name: one for one in document(diagnose(found)).growth or ()}
    assert told.keys() == growth.keys() and told["shared memory"].seconds_left == memory.seconds_left


# Not large: the more pages a process has, the more it costs to ask whose they are, and the seldomer it is asked.
COPIED = """
    import os, signal, time
    import lastwords
    shared = [object() for _ in range(600_000)]
    watcher = os.getppid()
    pid = os.fork()
    if pid == 0:
        looked_at(watcher)
        for index in range(60):
            with lastwords.item(f"item-{index}", index=index):
                mine = shared[index * 10_000 : (index + 1) * 10_000]  # counts each object once more
                time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@pytest.mark.slow
def test_a_forked_worker_that_only_reads_what_it_shares(tmp_path: Path) -> None:
    run(tmp_path, sampled(COPIED))
    (found,) = Store(tmp_path).all()
    growth = found.growth or ()
    assert [one.name for one in growth] == ["private memory"], (growth, found.memory)
    assert 0.08 * MIB < growth[0].per_item < 0.4 * MIB
