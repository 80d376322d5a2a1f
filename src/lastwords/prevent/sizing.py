"""How many workers: from what an item takes of CPU, waiting and memory. Pure, and the arithmetic is part of the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from lastwords.prevent import sizes
from lastwords.prevent.job import PREFETCH
from lastwords.prevent.measured import ProcessMeasures, Trial

RESERVE = 0.8
"""Of memory and shared memory; the rest is for what the first batches did not show."""
HEADROOM = 1.25
"""Workers beyond what the loop consumed, so that it never waits."""
BUSY_ENOUGH = 0.85
"""Workers that had an item this much of the time were what the loop waited for."""
UNEVEN = 2.0
"""The slowest batches take this many times the mean: more of them ahead even that out."""
MOST_AHEAD = 4


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, before the job: bytes and CPUs."""

    memory: int | None
    shared_memory: int | None
    cpus: float


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the published JSON."""

    num_workers: int
    prefetch_factor: int
    batches_in_flight: int
    memory_limit: int
    """Bytes that a container should be given."""
    shared_memory: int
    arithmetic: tuple[str, ...]


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of one item, over all workers."""

    cpu: float
    wait: float
    busy: float
    unevenness: float


def recommend(trial: Trial, room: Room) -> Recommendation | None:
    """None: too little is known to say anything."""
    item = _item(trial.workers)
    is_in_the_dark = trial.is_failure and trial.batch_bytes is None
    if item is None or trial.main is None or is_in_the_dark:
        return None
    lines: list[str] = []
    prefetch = _prefetch(item, trial, lines)
    worker = max(one.private_bytes for one in trial.workers)
    batch = trial.batch_bytes or 0
    useful = _useful(item, trial, room.cpus, lines)
    number = min([useful, *_fitting(trial, room, worker, batch * prefetch, lines)])
    if number < 1:
        number = useful
        lines.append(f"not one worker fits here: these numbers are for a machine that has room for {number}")
    lines.append(f"num_workers = {number}")
    flight = number * prefetch + 1
    memory = trial.main.peak_bytes + number * worker + flight * batch
    lines.append(
        f"memory: {sizes.words(trial.main.peak_bytes)} for the main process + {number} × {sizes.words(worker)} "
        f"+ {flight} batches × {sizes.words(batch)} = {sizes.words(memory)}, and a quarter more"
    )
    return Recommendation(
        num_workers=number,
        prefetch_factor=prefetch,
        batches_in_flight=flight,
        memory_limit=round(memory / RESERVE),
        shared_memory=round(flight * batch / RESERVE),
        arithmetic=tuple(lines),
    )


def _item(workers: Sequence[ProcessMeasures]) -> _Item | None:
    known = [
        one for one in workers if one.cpu_ns_per_item is not None and one.item_ns and one.busy is not None
    ]
    if not known:
        return None
    count = len(known)
    return _Item(
        cpu=sum(one.cpu_ns_per_item or 0.0 for one in known) / count,
        wait=sum(one.wait_ns_per_item or 0.0 for one in known) / count,
        busy=sum(one.busy or 0.0 for one in known) / count,
        unevenness=max((one.slowest_item_ns or 0.0) / (one.item_ns or 1.0) for one in known),
    )


def _prefetch(item: _Item, trial: Trial, lines: list[str]) -> int:
    """Within a batch slow items and quick ones even out, as the mean of many does."""
    size = (trial.loader.batch_size if trial.loader else None) or 1
    uneven = 1 + (item.unevenness - 1) / math.sqrt(size)
    if uneven <= UNEVEN:
        return PREFETCH
    prefetch = min(MOST_AHEAD, math.ceil(uneven))
    lines.append(f"the slowest batches take about {uneven:.1f} times the mean: {prefetch} ahead even it out")
    return prefetch


def _useful(item: _Item, trial: Trial, cpus: float, lines: list[str]) -> int:
    """As many as the loop consumes, or as the CPUs can keep at work."""
    count = len(trial.workers)
    cpu, wait = item.cpu / 1e6, item.wait / 1e6
    lines.append(f"an item takes {cpu:.2f} ms of CPU and waits {wait:.2f} ms")
    if item.busy < BUSY_ENOUGH:
        needed = max(1, math.ceil(count * item.busy * HEADROOM))
        lines.append(
            f"{count} workers were busy {item.busy:.0%} of the time, so the loop was the slower part: "
            f"{count} × {item.busy:.2f} × {HEADROOM} → {needed}"
        )
        return needed
    share = (trial.main.cpu_share if trial.main else None) or 0.0
    free = max(1.0, cpus - min(share, 1.0))
    most = max(1, math.floor(free * (item.cpu + item.wait) / max(item.cpu, 1.0)))
    lines.append(
        f"{count} workers were busy {item.busy:.0%} of the time, so the loop waited for them; {cpus:g} CPUs less "
        f"{min(share, 1.0):.1f} of the main process keep {free:.1f} × ({cpu:.2f} + {wait:.2f}) / {cpu:.2f} → {most} at work"
    )
    return most


def _fitting(trial: Trial, room: Room, worker: int, ahead: int, lines: list[str]) -> list[int]:
    limits = []
    batch = trial.batch_bytes or 0
    if room.memory is not None and trial.main is not None and worker + ahead:
        left = room.memory * RESERVE - trial.main.peak_bytes - batch
        limits.append(math.floor(left / (worker + ahead)))
        lines.append(
            f"memory: {sizes.words(room.memory)} × {RESERVE} less {sizes.words(trial.main.peak_bytes + batch)} of the main process, "
            f"by {sizes.words(worker)} + {sizes.words(ahead)} a worker → at most {limits[-1]}"
        )
    if room.shared_memory is not None and ahead:
        limits.append(math.floor((room.shared_memory * RESERVE - batch) / ahead))
        lines.append(
            f"shared memory: {sizes.words(room.shared_memory)} × {RESERVE} by {sizes.words(ahead)} a worker → at most {limits[-1]}"
        )
    return limits
