"""What a loader has seen: deaths, items that were left out, how long things took, and who waited for whom."""

from __future__ import annotations

import heapq
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lastwords.survive.progress import Kind, Progress

if TYPE_CHECKING:
    from lastwords.survive.deaths import Death

SLOWEST = 10
"""Items that are kept by name."""
MOST_DEATHS = 1000
MOST_ADVICE = 3
WORTH_SAYING = 0.05
"""Share of the trainer's time: below it, waiting is no matter."""


@dataclass(frozen=True)
class LostItem:
    """An item that killed its worker each time, or raised where the policy bears that, and what became of it."""

    index: Any
    batch: int
    cause: str | None
    how: str
    substitute: Any = None
    """The index that took its place; None: it was skipped."""

    def __str__(self) -> str:
        fate = "skipped" if self.substitute is None else f"replaced by item {self.substitute}"
        who = "it" if self.how.startswith("raised ") else "its worker"
        return f"item {self.index} {fate}: {who} {self.how} ({self.cause or 'cause not known'})"


@dataclass
class WorkerTimes:
    batches: int = 0
    seconds: float = 0.0


@dataclass
class Report:
    """`print(loader.report())` says it in words. All counts are since the loader was made."""

    batches: int = 0
    deaths: list[dict[str, Any]] = field(default_factory=list)
    lost: list[LostItem] = field(default_factory=list)
    workers: dict[int, WorkerTimes] = field(default_factory=dict)
    slowest: list[tuple[float, Any]] = field(default_factory=list)
    """Seconds and index, the slowest first."""
    waited: float = 0.0
    """Seconds that the trainer waited for batches."""
    total: float = 0.0
    """Seconds between its first wish and its last batch."""
    pinned_by_copy: str | None = None
    """Why `pin_memory` takes a copy of each batch; None: it does not, or is not wanted."""

    @property
    def skipped(self) -> list[LostItem]:
        return [one for one in self.lost if one.substitute is None]

    @property
    def substituted(self) -> list[LostItem]:
        return [one for one in self.lost if one.substitute is not None]

    @property
    def waiting_share(self) -> float:
        return self.waited / self.total if self.total else 0.0

    @property
    def workers_needed(self) -> int | None:
        """So many would keep the trainer busy, if they have a core each; None: it is, or too little was seen."""
        busy = sum(one.seconds for one in self.workers.values())
        computing = self.total - self.waited
        if self.waiting_share < WORTH_SAYING or computing <= 0:
            return None
        return max(len(self.workers) + 1, -int(-busy // computing))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"waiting_share": self.waiting_share, "workers_needed": self.workers_needed}

    def __str__(self) -> str:
        lines = [f"{self.batches} batches from {len(self.workers)} workers, {len(self.deaths)} deaths"]
        lines += [self._waiting()] if self.total else []
        lines += [str(one) for one in self.lost]
        lines += self._advice()
        if self.slowest:
            shown = ", ".join(f"{index} ({seconds * 1000:.1f} ms)" for seconds, index in self.slowest[:3])
            lines.append(f"slowest items: {shown}")
        if self.pinned_by_copy is not None:
            lines.append(f"batches are pinned by a copy: {self.pinned_by_copy}")
        return "\n".join(lines)

    def _advice(self) -> list[str]:
        """About items that passed alone: they are not lost, and yet something is wrong."""
        found = [one["advice"] for one in self.deaths if one.get("advice")]
        left = len(found) - MOST_ADVICE
        return found[:MOST_ADVICE] + ([f"and {left} more that passed alone"] if left > 0 else [])

    def _waiting(self) -> str:
        text = f"the trainer waited {self.waiting_share:.0%} of the time"
        needed = self.workers_needed
        return text if needed is None else f"{text}: {needed} workers would do, with a core each"


class Record:
    """Writes the report. `arrived`, `died` and `passed` are called by the supervisor's thread, the rest by the trainer's."""

    def __init__(self) -> None:
        self.report = Report()
        self.poison: dict[Any, Any] = {}
        """Indices that kill, and what stands for each: another index, or None. Later epochs need not find out again."""
        self._raised: set[tuple[str, str]] = set()
        self._slowest: list[tuple[int, int, Any]] = []
        self._began: float | None = None
        self._count = 0
        self._progress: Progress | None = None
        self._given = self._total = 0

    def __getstate__(self) -> dict[str, Any]:
        """A bar stays where it is shown."""
        return self.__dict__ | {"_progress": None}

    def show(self, kind: Kind, total: int, given: int) -> None:
        """From now on, for an epoch of `total` batches, of which `given` were given already."""
        self._close_progress()
        self._given, self._total = given, total
        self._progress = Progress(kind, self._counts, unit="batch")

    def _counts(self) -> dict[str, int]:
        lost, deaths = len(self.report.lost), len(self.report.deaths)
        return {
            "done": self._given,
            "total": max(self._total, self._given),
            "retried": deaths,
            "poisoned": lost,
        }

    def _close_progress(self) -> None:
        if self._progress is not None:
            progress, self._progress = self._progress, None
            progress.close()

    def arrived(self, seat: int, index: Any, timing: tuple[int, int, int]) -> None:
        nanoseconds, slowest, position = timing
        times = self.report.workers.setdefault(seat, WorkerTimes())
        times.batches += 1
        times.seconds += nanoseconds / 1e9
        if position >= 0 and (len(self._slowest) < SLOWEST or slowest > self._slowest[0][0]):
            self._count += 1  # so that indices, which may be anything, are never compared
            push = heapq.heappush if len(self._slowest) < SLOWEST else heapq.heapreplace
            push(self._slowest, (slowest, self._count, index[position]))

    def died(self, death: Death) -> None:
        if len(self.report.deaths) < MOST_DEATHS:
            self.report.deaths.append(
                {
                    "worker": death.seat,
                    "pid": death.pid,
                    "how": death.words,
                    "cause": death.cause,
                    "item": death.task.words(death) if death.task is not None else None,
                    "id": death.diagnosis.evidence.id if death.diagnosis is not None else None,
                    "time": death.time,
                    "alone": death.alone,
                    "advice": death.advice,
                }
            )
        if death.before is not None:
            self._update(death.before)

    def passed(self, death: Death) -> None:
        """Its task has passed alone. If nobody has explained it yet, `died` is told of both."""
        self._update(death)

    def _update(self, death: Death) -> None:
        for entry in self.report.deaths:
            if (entry["pid"], entry["time"]) == (death.pid, death.time):
                entry |= {"alone": death.alone, "advice": death.advice}

    def lose(self, item: LostItem) -> None:
        self.report.lost.append(item)

    def lose_once(self, item: LostItem) -> bool:
        """False: it is known from an earlier epoch. Indices may be anything, also what cannot be compared."""
        key = (str(item.index), item.how)
        if key in self._raised:
            return False
        self._raised.add(key)
        self.lose(item)
        return True

    def wanted(self) -> float:
        """The trainer asks for a batch."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now

    def got(self, since: float) -> None:
        now = time.monotonic()
        self.report.batches += 1
        self.report.waited += now - since
        assert self._began is not None
        self.report.total += now - self._began
        self._began = now
        self._given += 1
        if self._progress is not None:
            self._progress.pass_time()

    def pause(self) -> None:
        """The epoch is over: what the trainer does until the next one is not time between two batches."""
        self._began = None
        self._close_progress()

    def finished(self) -> Report:
        self.report.slowest = [(one[0] / 1e9, one[2]) for one in sorted(self._slowest, reverse=True)]
        return self.report
