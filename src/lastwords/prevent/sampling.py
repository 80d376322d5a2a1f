"""Looking at a job's processes from outside, again and again: their boxes, and what /proc says of them."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lastwords import _native
from lastwords.prevent.measured import Fork, LoaderSettings, ProcessMeasures, Trial
from lastwords.prevent.runtimes import runtimes_among
from lastwords.watch.deaths import NOT_A_WORKER
from lastwords.watch.threads import cpu_time

# Reading how much of a process's memory is its own walks its page tables: not at every look.
SECONDS_BETWEEN_DEEP_LOOKS = 0.5
BATCHES_OF_EACH_WORKER = 2
SECONDS_OF_ITEMS = 2.0
"""Some forty looks: a quick job has done its first batches before the second."""
_SEGMENT = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .* /dev/shm/torch_(\d+)_\d+_(\d+)", re.MULTILINE)
_LIBRARY = re.compile(r" (/[^\n]*\.so[^\n/]*)$", re.MULTILINE)
_SETTING = re.compile(r"(\w+)=(\w+)")
_START_TICKS = 19


@dataclass(frozen=True, slots=True)
class Look:
    time_ns: int
    items: int
    ran_ns: int
    waited_ns: int


@dataclass(slots=True)
class Watched:
    """One process of the job, as often as it was looked at."""

    pid: int
    box: str
    record: Mapping[str, Any] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    peak_bytes: int = 0
    most_shared: int = 0
    private_bytes: int = 0
    descriptors: int = 0
    threads: int = 0
    deep_time: float = 0.0

    def note_memory(self, status: Mapping[str, int]) -> None:
        """Without batches in /dev/shm, which are counted as such; a peak between two looks is in VmHWM."""
        self.most_shared = max(self.most_shared, status.get("RssShmem", 0))
        own = status.get("RssAnon", 0) + status.get("RssFile", 0)
        self.peak_bytes = max(self.peak_bytes, own << 10, (status.get("VmHWM", 0) - self.most_shared) << 10)

    @property
    def identity(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record.get("identity") or {}
        return found

    @property
    def is_worker(self) -> bool:
        return self.identity.get("worker") is not None or self.identity.get("role") not in NOT_A_WORKER

    @property
    def items(self) -> int:
        done: int = (self.record.get("live") or {}).get("items_done") or 0
        return done


class Sampler:
    def __init__(self, home: str) -> None:
        self._home = home
        self._watched: dict[str, Watched] = {}
        self._loader: LoaderSettings | None = None
        self._segments: dict[tuple[int, int], int] = {}
        """Bytes of each piece of shared memory that torch made: by the worker's pid and its count."""
        self._most_held = 0
        self._together: dict[int, list[int]] = {}
        """Bytes of all pieces of one worker that the main process had at once, by how many they were."""
        self._shared_before = _shared_memory()
        self._shared_peak = 0
        self._most_threads = 0
        self._first_item: float | None = None
        self._last_item = (0, 0.0)
        """How many there were when the last one was done, and when that was."""
        self._fork: Fork | None = None
        self._runtimes: tuple[str, ...] = ()

    @property
    def pids(self) -> set[int]:
        return {one.pid for one in self._watched.values()}

    def look(self) -> None:
        for path in glob.glob(os.path.join(glob.escape(self._home), "runs", "*", "*.box")):
            self._watched.setdefault(path, Watched(_pid_of(path), path))
        threads = sum(self._look_at(one) for one in self._watched.values())
        if self._first_item is None and any(one.items for one in self._watched.values()):
            self._first_item = time.monotonic()
        items = sum(one.items for one in self._watched.values())
        if items > self._last_item[0]:
            self._last_item = (items, time.monotonic())
        self._most_threads = max(self._most_threads, threads)
        self._shared_peak = max(self._shared_peak, _shared_memory() - self._shared_before)

    def _look_at(self, one: Watched) -> int:
        """How many threads it has now."""
        record = _read(one.box)
        status = _status(one.pid)
        if record is None or not status:
            return 0
        one.record = record
        now = time.monotonic_ns()
        times = cpu_time(one.pid, now)
        if times is not None:
            one.looks.append(Look(now, one.items, times.ran_ns, times.waited_ns))
        one.note_memory(status)
        threads = status.get("Threads", 0)
        one.threads = max(one.threads, threads)
        one.descriptors = max(one.descriptors, _count(f"/proc/{one.pid}/fd"))
        maps = _text(f"/proc/{one.pid}/maps")
        held = _segments(maps)
        self._segments.update(held)
        if not one.is_worker:
            self._look_at_main(one, maps, held)
        elif self._fork is None and one.identity.get("forked"):
            self._fork = _fork(one, self._watched.values())
        if time.monotonic() - one.deep_time > SECONDS_BETWEEN_DEEP_LOOKS:
            one.deep_time = time.monotonic()
            one.private_bytes = max(one.private_bytes, _private(one.pid))
        return threads

    def _look_at_main(self, one: Watched, maps: str, held: Mapping[tuple[int, int], int]) -> None:
        self._most_held = max(self._most_held, len(held))
        for sizes in _by_worker(held):
            self._together.setdefault(len(sizes), []).append(sum(sizes))
        found = runtimes_among(_LIBRARY.findall(maps))
        self._runtimes = max(self._runtimes, found, key=len)
        for event in one.record.get("events") or ():
            text = event.get("text") or ""
            if event.get("kind") == "note" and text.startswith("DataLoader "):
                self._loader = _settings(text)

    def has_done(self, batches: int) -> bool:
        """Enough in all, of each worker more than its first, and long enough to have been looked at often."""
        if self._first_item is None or time.monotonic() - self._first_item < SECONDS_OF_ITEMS:
            return False
        workers = self._workers()
        if not workers:
            return sum(one.items for one in self._watched.values()) >= batches
        size = self._batch_size()
        return sum(one.items for one in workers) >= batches * size and all(
            one.items >= BATCHES_OF_EACH_WORKER * size for one in workers
        )

    def _batch_size(self) -> int:
        return (self._loader.batch_size if self._loader else None) or 1

    def _workers(self) -> list[Watched]:
        """Of the parent that has most of them: a job may have pools beside its loader."""
        by_parent: dict[object, list[Watched]] = {}
        for one in self._watched.values():
            if one.is_worker:
                by_parent.setdefault(one.identity.get("parent"), []).append(one)
        return max(by_parent.values(), key=len, default=[])

    def _main(self, workers: list[Watched]) -> Watched | None:
        parents = {one.identity.get("parent") for one in workers}
        others = [one for one in self._watched.values() if not one.is_worker]
        return next((one for one in others if one.pid in parents), others[0] if others else None)

    def trial(self, **known: Any) -> Trial:
        workers = self._workers()
        main = self._main(workers)
        items = sum(one.items for one in workers) or (main.items if main else 0)
        tensors, batch = self._batch(workers)
        return Trial(
            **known,
            items=items,
            batches=items / self._batch_size() if items else None,
            loader=self._loader,
            main=measures(main) if main is not None else None,
            workers=tuple(measures(one) for one in workers),
            batch_bytes=batch,
            batch_tensors=tensors,
            held_batches=self._most_held / tensors if tensors else None,
            shared_memory_peak=self._shared_peak,
            threads=self._most_threads,
            fork=self._fork,
            runtimes=self._runtimes,
            stood_still=round(time.monotonic() - self._last_item[1], 1) if self._last_item[0] else 0.0,
        )

    def _batch(self, workers: list[Watched]) -> tuple[float | None, int | None]:
        """Tensors of a batch, and their bytes: torch counts the pieces of shared memory that each worker makes."""
        numbers = ([number for pid, number in self._segments if pid == one.pid] for one in workers)
        made = sum(max(found, default=-1) + 1 for found in numbers)
        batches = sum(one.items for one in workers) / self._batch_size()
        if not made or batches < 1:
            return None, None
        tensors = self._tensors(made, batches)
        whole = self._together.get(tensors)
        mean = sum(self._segments.values()) / len(self._segments)
        return tensors, round(statistics.median(whole)) if whole else round(mean * tensors)

    def _tensors(self, made: int, batches: float) -> int:
        """The loop is behind the workers by what is in flight, so the count has two bounds; mostly it holds one batch
        of a worker at a time, and that is the number between them.
        """
        settings = self._loader or LoaderSettings()
        ahead = settings.num_workers * (settings.prefetch_factor or 2) + settings.num_workers
        least, most = made / batches, made / max(1.0, batches - ahead)
        usual = max(self._together, key=lambda count: len(self._together[count]), default=0)
        if usual and round(least) <= usual <= max(1.0, most + 1):
            return usual
        return max(1, round(least + 0.49))


def measures(one: Watched) -> ProcessMeasures:
    looks = [look for look in one.looks if look.items >= 1]
    durations = sorted(
        item["duration_ns"] for item in one.record.get("items") or () if item.get("duration_ns")
    )
    mean = sum(durations) / len(durations) if durations else None
    return ProcessMeasures(
        pid=one.pid,
        parent=one.identity.get("parent"),
        role=one.identity.get("role"),
        worker=one.identity.get("worker"),
        forked=one.identity.get("forked"),
        items=one.items,
        peak_bytes=one.peak_bytes,
        private_bytes=one.private_bytes,
        descriptors=one.descriptors,
        threads=one.threads,
        item_ns=mean,
        slowest_item_ns=durations[int(len(durations) * 0.95)] if durations else None,
        cpu_share=_cpu_share(one.looks),
        **_per_item(looks, mean),
    )


def _per_item(looks: list[Look], mean: float | None) -> dict[str, float | None]:
    """Between the first look after the first item and the last: what is imported and warmed up does not count."""
    if len(looks) < 2 or mean is None or looks[-1].items <= looks[0].items:
        return {}
    first, last = looks[0], looks[-1]
    items, passed = last.items - first.items, last.time_ns - first.time_ns
    cpu, queue = (last.ran_ns - first.ran_ns) / items, (last.waited_ns - first.waited_ns) / items
    busy = min(1.0, max(mean, cpu) * items / passed)
    return {
        "cpu_ns_per_item": cpu,
        "queue_ns_per_item": queue,
        # Between items it queues as well: of that, the part that fell into them.
        "wait_ns_per_item": max(0.0, mean - cpu - queue * busy),
        "busy": busy,
    }


def _cpu_share(looks: list[Look]) -> float | None:
    """Of the last half of its life: a job begins with imports."""
    late = looks[len(looks) // 2 :]
    passed = late[-1].time_ns - late[0].time_ns if len(late) > 1 else 0
    return (late[-1].ran_ns - late[0].ran_ns) / passed if passed else None


def _fork(worker: Watched, others: Iterable[Watched]) -> Fork | None:
    """Threads that the parent had before this worker was born: of those only the forking one lives on in it."""
    parent = worker.identity.get("parent")
    if not parent or all(one.pid != parent for one in others):
        return None
    # A tick is 10 ms, and a thread started just before the fork is born in the same one: then the numbers tell, which
    # the kernel gives out in order.
    born = (worker.identity.get("start_ticks") or 0, worker.pid)
    elder = [tid for tid in _tids(parent) if tid != parent and (_start_ticks(parent, tid), tid) < born]
    names = [_text(f"/proc/{parent}/task/{tid}/comm").strip() for tid in elder]
    # The driver's own threads say no more than that CUDA is in use.
    named = [name for name in names if not name.startswith("cuda")]
    return Fork(parent_threads=len(named), names=tuple(sorted(set(named))), cuda=_has_gpu_open(parent))


def _segments(maps: str) -> dict[tuple[int, int], int]:
    """Bytes of each piece of torch's shared memory in a process: by the worker's pid and its count."""
    return {
        (int(pid), int(number)): int(end, 16) - int(begin, 16)
        for begin, end, pid, number in _SEGMENT.findall(maps)
    }


def _by_worker(held: Mapping[tuple[int, int], int]) -> Iterable[list[int]]:
    found: dict[int, list[int]] = {}
    for (pid, _), size in held.items():
        found.setdefault(pid, []).append(size)
    return found.values()


def _has_gpu_open(pid: int) -> bool:
    for descriptor in _names(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if re.match(r"/dev/nvidia\d", os.readlink(f"/proc/{pid}/fd/{descriptor}")):
                return True
    return False


def _settings(text: str) -> LoaderSettings:
    found = dict(_SETTING.findall(text))
    names = ("num_workers", "prefetch_factor", "batch_size")
    numbers = {name: int(found[name]) for name in names if found.get(name, "").isdecimal()}
    return LoaderSettings(**numbers, pin_memory=found.get("pin_memory") == "True")


def _read(path: str) -> Mapping[str, Any] | None:
    """It is being written while we read, and may be gone."""
    with contextlib.suppress(OSError, ValueError):
        found: Mapping[str, Any] = json.loads(_native.read_box(path))
        return found
    return None


def _pid_of(path: str) -> int:
    head = os.path.basename(path).partition("-")[0]
    return int(head) if head.isdecimal() else 0


def _status(pid: int) -> dict[str, int]:
    pairs = (line.split() for line in _text(f"/proc/{pid}/status").splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdecimal()}


def _private(pid: int) -> int:
    pairs = (line.split() for line in _text(f"/proc/{pid}/smaps_rollup").splitlines())
    found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 3 and pair[1].isdecimal()}
    return (found.get("Private_Clean:", 0) + found.get("Private_Dirty:", 0)) << 10


def _shared_memory() -> int:
    """Bytes in use."""
    with contextlib.suppress(OSError):
        found = os.statvfs("/dev/shm")  # noqa: S108  # asked how full it is
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


def _tids(pid: int) -> list[int]:
    return [int(name) for name in _names(f"/proc/{pid}/task") if name.isdecimal()]


def _start_ticks(pid: int, tid: int) -> int:
    fields = _text(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2].split()
    with contextlib.suppress(IndexError, ValueError):
        return int(fields[_START_TICKS])
    return 1 << 62


def children_of(pid: int) -> list[int]:
    """Of all its threads."""
    words = [word for tid in _tids(pid) for word in _text(f"/proc/{pid}/task/{tid}/children").split()]
    return [int(word) for word in words]


def _names(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(path)
    return []


def _count(path: str) -> int:
    return len(_names(path))


def _text(path: str) -> str:
    """Maps of a big job have a megabyte: all of it, and not more."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(16 << 20).decode("utf-8", "replace")
    return ""
