"""What grew from item to item while a process lived: memory, memory of its own, open files, threads, shared memory; and
how long it could have gone on.

A leak rises all along; one huge item rises once. So the items are cut into quarters, and each quarter has to take part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from lastwords.evidence import box as raw
from lastwords.evidence.model import Evidence, Growth, LimitUse, MemoryGroup, Space
from lastwords.watch.curves import Looks, Points
from lastwords.watch.shared_files import Shares

KIB = 1024
QUARTERS = 4
FEWEST_ITEMS = 20
"""The first items fill caches: growth over fewer says nothing."""
FAIR_SHARE = 0.35
"""Each quarter of the items has at least this part of what an even growth would give it; one of them may miss it."""
STEADY = 3.0
"""Growth over the whole life is told if it is within this factor of that over the recent items."""
LEVEL = 0.1
"""Memory of its own grows although the resident memory grows by less than this part of it: pages that were shared with
the parent are written to, and copied."""

Series = Sequence[tuple[int, int]]
"""Monotonic nanoseconds and an amount, oldest first."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # the name of the place, nothing is put there
SHARED_FILES = f"files in {SHARED_MEMORY}"
SMALLEST = {
    "memory": 64 * KIB,
    "private memory": 64 * KIB,
    "open files": 0.2,
    "threads": 0.05,
    SHARED_FILES: 0.2,
    "shared memory": 64 * KIB,
}
_LISTED = f"{SHARED_MEMORY}, listed by the watcher while it lived; files that nobody has open count for all workers alike"
SOURCES = {
    "memory": "resident memory, sampled by the watcher while it lived",
    "private memory": "/proc/PID/smaps_rollup, read by the watcher while it lived",
    "open files": "/proc/PID/fd, counted by the watcher while it lived",
    "threads": "/proc/PID/task, counted by the watcher while it lived",
    SHARED_FILES: _LISTED,
    "shared memory": _LISTED,
}


class Shared(NamedTuple):
    """Files of shared memory, as the watcher saw them."""

    shares: Shares = ()
    sharers: float = 1.0
    """How many workers may have made those of which nobody knows who did."""


NO_SHARED = Shared()


def with_growth(
    evidence: Evidence,
    box: raw.Box | None,
    points: Points,
    looks: Looks,
    siblings: Iterable[Points] = (),
    shared: Shared = NO_SHARED,
) -> Evidence:
    """`evidence` with what grew; it must have its machine already, which knows the limits."""
    if box is None or not points:
        return evidence
    every = (*_series(points, looks), *_shared_series(shared))
    grown = [one for name, series in every if (one := _growth(name, series, box)) is not None]
    beside = _Beside(list(siblings), _pace([(share.time_ns, share.all_size) for share in shared.shares]))
    found = tuple(_with_limit(one, evidence, beside) for one in _told_once(grown))
    return msgspec.structs.replace(evidence, growth=found)


def _series(points: Points, looks: Looks) -> Iterator[tuple[str, Series]]:
    yield "memory", [(at, resident * KIB) for at, resident, _ in points]
    yield "private memory", [(look[0], look[4] * KIB) for look in looks if look[4] is not None]
    yield "open files", [(look[0], look[1]) for look in looks if look[1] is not None]
    yield "threads", [(look[0], look[2]) for look in looks if look[2] is not None]


def _shared_series(shared: Shared) -> Iterator[tuple[str, Series]]:
    shares, among = shared.shares, shared.sharers
    yield SHARED_FILES, [(one.time_ns, one.files + int(one.loose_files / among)) for one in shares]
    yield "shared memory", [(one.time_ns, one.size + int(one.loose_size / among)) for one in shares]


def _told_once(grown: Sequence[Growth]) -> Iterator[Growth]:
    """Memory that grows is mostly the process's own: that is worth a word only where the resident memory is level."""
    resident = next((one.per_item for one in grown if one.name == "memory"), 0.0)
    for one in grown:
        if one.name != "private memory" or resident < LEVEL * one.per_item:
            yield one


def _growth(name: str, series: Series, box: raw.Box) -> Growth | None:
    if len(series) < 2:
        return None
    for window in (_recent(series, box), _life(series, box)):
        if window is None or window.items < FEWEST_ITEMS:
            continue
        levels = [_at(series, at) for at in window.times]
        grown = levels[-1] - levels[0]
        if grown < SMALLEST[name] * window.items or not _is_even(levels):
            return None
        per_item, items = _over_life(series, box, grown / window.items, window.items, window.times[-1])
        seconds = (window.times[-1] - window.times[0]) / 1e9
        return Growth(
            source=SOURCES[name],
            name=name,
            per_item=round(per_item, 3),
            items=items,
            per_second=round(grown / seconds, 3) if seconds > 0 else None,
            used=max(amount for _, amount in series),  # a process that ends gives back while it is looked at
        )
    return None


class _Window(NamedTuple):
    """Four stretches of time, with about as many items in each."""

    times: list[int]
    items: int


def _recent(series: Series, box: raw.Box) -> _Window | None:
    """The items that the box remembers. None: they were over before anybody had looked often enough."""
    starts = _starts(box)
    if len(starts) < 2 or sum(at >= starts[0] for at, _ in series) < QUARTERS:
        return None
    places = [place * (len(starts) - 1) // QUARTERS for place in range(QUARTERS + 1)]
    return _Window([starts[place] for place in places], len(starts) - 1)


def _life(series: Series, box: raw.Box) -> _Window | None:
    """All items, taken to have come evenly."""
    starts, done = _starts(box), box.live.items_done if box.live is not None else 0
    if not starts or len(series) < QUARTERS:
        return None
    begun, ended = series[0][0], max(starts[-1], series[0][0])
    return _Window([begun + (ended - begun) * place // QUARTERS for place in range(QUARTERS + 1)], done)


def _starts(box: raw.Box) -> list[int]:
    """When the recent items began, the last one included: what that one took is its own affair."""
    current = box.live.current if box.live is not None else None
    starts = [done.started_ns for done in box.items if done.started_ns]
    if current is not None and current.started_ns and current.phase != "idle":
        starts.append(current.started_ns)
    return sorted(set(starts))


def _at(series: Series, at: int) -> int:
    place = bisect_right(series, at, key=lambda point: point[0])
    return series[max(0, place - 1)][1]


def _is_even(levels: Sequence[int]) -> bool:
    fair = (levels[-1] - levels[0]) / QUARTERS * FAIR_SHARE
    return sum(after - before < fair for before, after in pairwise(levels)) <= 1


def _over_life(series: Series, box: raw.Box, recent: float, items: int, end: int) -> tuple[float, int]:
    """The box remembers the last 64 items. If it grew at about the same pace before, all of its items are told."""
    done = box.live.items_done if box.live is not None else 0
    if done <= items:
        return recent, items
    whole = (_at(series, end) - series[0][1]) / done
    return (whole, done) if recent / STEADY < whole < recent * STEADY else (recent, items)


# How long it could have gone on.


class _Beside(NamedTuple):
    """What the others of the job do."""

    memory: list[Points]
    """Of its siblings."""
    shared_pace: float
    """Bytes of shared memory a second, of the whole job."""


def _with_limit(found: Growth, evidence: Evidence, beside: _Beside) -> Growth:
    limit, used = _limit(found, evidence)
    paces = (_pace([(at, resident * KIB) for at, resident, _ in points]) for points in beside.memory)
    alike = [pace for pace in paces if found.name == "memory" and pace > 0]
    alike = [pace for pace in alike if found.per_second and pace > found.per_second / STEADY]
    pace = beside.shared_pace if found.name == "shared memory" else found.per_second
    return msgspec.structs.replace(
        found,
        limit=limit,
        seconds_left=_left(limit, used, pace),
        alike=len(alike) if found.name == "memory" else None,
        next_death=_left(limit, used, sum(alike)) if alike else None,
    )


def _limit(found: Growth, evidence: Evidence) -> tuple[int | None, int | None]:
    """What there is of it, and how much was used."""
    machine = evidence.machine
    if machine is None:
        return None, None
    if found.name in ("memory", "private memory"):
        return _memory_limit(
            machine.memory_groups or (), machine.memory.total if machine.memory else None, found
        )
    if found.name in (SHARED_FILES, "shared memory"):
        return _room_in_shared_memory(machine.spaces or (), found)
    wanted = {"open files": ("open files",), "threads": ("tasks of its cgroup", "processes")}[found.name]
    limits = [one for one in machine.limits or () if one.name in wanted and one.soft is not None]
    return _tightest(limits, found)


def _memory_limit(
    groups: Sequence[MemoryGroup], total: int | None, found: Growth
) -> tuple[int | None, int | None]:
    limited = [group for group in groups if group.limit is not None]
    if limited:
        group = min(limited, key=lambda one: (one.limit or 0) - (one.used or 0))
        return group.limit, group.used
    return total, found.used


def _room_in_shared_memory(spaces: Sequence[Space], found: Growth) -> tuple[int | None, int | None]:
    space = next((one for one in spaces if one.path == SHARED_MEMORY), None)
    if space is None or (found.name == SHARED_FILES and space.free_files is None):
        return None, None
    if found.name == SHARED_FILES:
        return found.used + (space.free_files or 0), found.used
    return space.total, space.total - space.free


def _tightest(limits: Sequence[LimitUse], found: Growth) -> tuple[int | None, int | None]:
    if not limits:
        return None, None
    one = min(limits, key=lambda limit: (limit.soft or 0) - (limit.used or 0))
    return one.soft, max(one.used or 0, found.used)


def _left(limit: int | None, used: int | None, per_second: float | None) -> float | None:
    if limit is None or used is None or not per_second or per_second <= 0:
        return None
    return round(max(0, limit - used) / per_second, 1)


def _pace(series: Series) -> float:
    """How much a second, over the later half of what was seen."""
    recent = series[len(series) // 2 :]
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return 0.0
    return (recent[-1][1] - recent[0][1]) / ((recent[-1][0] - recent[0][0]) / 1e9)
