"""How the memory of a process went up to its end: how much, how fast, and on which item.

A leak and one huge item end in the same kill. The curve with the beginnings of the items in it tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from lastwords.evidence import box as raw
from lastwords.evidence.life import FEWEST_ITEMS
from lastwords.evidence.model import Memory, MemoryPoint

SOURCE = "resident memory, sampled by the watcher while it lived"
KIB = 1024
MEASURED_NS = 1_000_000
"""The recorder measures the growth of items that take longer than this, and notes 0 for the others."""

Points = Sequence[tuple[int, int, int]]


def from_curve(points: Points, box: raw.Box | None = None, *, died_ns: int | None = None) -> Memory | None:
    """`points` as the watcher has them, together with the items that the box remembers."""
    if not points:
        return None
    last = died_ns if died_ns is not None else points[-1][0]
    per_item, items = _per_item(points, box) if box is not None else (None, None)
    return Memory(
        source=SOURCE,
        resident=points[-1][1] * KIB,
        peak=max(resident for _, resident, _ in points) * KIB,
        swap=points[-1][2] * KIB,
        per_item=per_item,
        items=items,
        on_item=_on_item(points, box) if box is not None else None,
        first=points[0][1] * KIB,
        curve=tuple(
            MemoryPoint(
                seconds_before=round(max(0, last - at) / 1e9, 3), resident=resident * KIB, swap=swap * KIB
            )
            for at, resident, swap in points
        ),
    )


def resident_at(points: Points, at: int) -> int:
    """KiB at the last look before `at`: what came between two looks is the later one's."""
    return next((resident for time, resident, _ in reversed(points) if time <= at), points[0][1])


def _current(box: raw.Box) -> raw.Current | None:
    current = box.live.current if box.live is not None else None
    return current if current is not None and current.started_ns and current.phase != "idle" else None


def _on_item(points: Points, box: raw.Box) -> int | None:
    current = _current(box)
    if current is None or current.started_ns is None:
        return None
    begun = resident_at(points, current.started_ns) + _since_the_last_look(points, box, current.started_ns)
    return (points[-1][1] - begun) * KIB


def _since_the_last_look(points: Points, box: raw.Box, until: int) -> int:
    """KiB by which items had grown it that were done by then, and that the recorder has measured: a busy machine lets the
    watcher look seldom, and a leak of many items would be the last one's.
    """
    looked = next((time for time, _, _ in reversed(points) if time <= until), until)
    between = (
        done for done in box.items if done.started_ns is not None and looked <= done.started_ns < until
    )
    return max(0, sum(done.rss_change_kib or 0 for done in between))


def _per_item(points: Points, box: raw.Box) -> tuple[int | None, int | None]:
    measured = [
        done.rss_change_kib
        for done in box.items
        if done.rss_change_kib is not None and (done.duration_ns or 0) >= MEASURED_NS
    ]
    if len(measured) >= max(FEWEST_ITEMS, len(box.items) / 2):
        return int(median(measured)) * KIB, len(measured)
    return _per_short_item(points, box)


def _per_short_item(points: Points, box: raw.Box) -> tuple[int | None, int | None]:
    """Of items too short to be measured one by one: their share of the growth, unless one step made most of it."""
    starts = [done.started_ns for done in box.items if done.started_ns]
    if len(starts) < FEWEST_ITEMS or starts[0] < points[0][0]:
        return None, None
    current = _current(box)
    end = current.started_ns if current is not None and current.started_ns is not None else points[-1][0]
    levels = [resident_at(points, starts[0])]
    levels += [resident for at, resident, _ in points if starts[0] < at <= end]
    grown = levels[-1] - levels[0]
    largest = max((after - before for before, after in pairwise(levels)), default=0)
    if grown > 0 and 2 * largest > grown:
        return None, None
    return grown * KIB // len(starts), len(starts)
