"""Batches as the supervisor's tasks: what is remembered of each seat, and what becomes of a batch that kills."""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils import worker as torch_worker

from lastwords.survive import loader_random, loader_worker
from lastwords.survive.loader_report import LostItem, Record
from lastwords.survive.loader_sieve import Raised, Skipped
from lastwords.survive.loader_transport import unpack
from lastwords.survive.loader_worker import FIRST_PROBE, WHOLE_BATCH, Fetched, Past, Plan
from lastwords.survive.quarantine import Quarantine
from lastwords.survive.tasks import Task

if TYPE_CHECKING:
    from lastwords.survive.deaths import Death
    from lastwords.survive.policy import Policy, WorkerDied

log = logging.getLogger("lastwords.survive")

SHOWN = 8
"""Indices of a batch that are named in a message."""
LARGE = 1 << 20
"""Bytes of a batch whose place is worth a word as soon as it is free."""


class Died(ExceptionWrapper):  # type: ignore[misc]  # torch is not looked into
    """In place of a batch: an exception of ours. torch's own wrapper would rebuild it from its text."""

    def __init__(self, error: BaseException) -> None:
        self._errors = [error]

    def reraise(self) -> None:
        """Once. Its traceback will hold the iterator, which ends its workers when nothing else does."""
        raise self._errors.pop()


@dataclass(slots=True)
class Delivery:
    """A batch for the trainer, and where its worker was after it."""

    data: Any
    past: Past | None

    def pin_memory(self, device: str | None = None) -> Delivery:
        from torch.utils.data._utils.pin_memory import pin_memory

        return replace(self, data=pin_memory(self.data, device))


class Feed:
    """What the trainer's side and the supervisor's thread share. It does not know the iterator, which may go first."""

    def __init__(self, plan: Plan, policy: Policy, record: Record, pasts: list[Past | None]) -> None:
        self.plan = plan
        self.policy = policy
        self.record = record
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.pasts = pasts
        """By seat, after the last batch that arrived. The supervisor's thread writes them."""
        self.quarantine = Quarantine(policy.quarantine)
        self.poison = record.poison
        self.last_good: Any = None
        self.is_large = False
        """The last batch that was given."""

    def setup(self, seat: int) -> tuple[Callable[..., object], tuple[Any, ...]]:
        if self.plan.shelf is not None:
            self.plan.shelf.reclaim(seat)
        return loader_worker.prepare, (self.plan, seat, self.pasts[seat])

    def resumed(self, seat: int, changes: Any, before: loader_random.Snapshot) -> None:
        after = loader_random.merged(before, changes)
        self.pasts[seat] = Past(after, random_at_start=before if self.plan.is_iterable else None)

    def arrived(self, task: Batch, fetched: Fetched) -> Past:
        _, buffers, changes, state, timing, raised = fetched
        if self.plan.shelf is not None:
            self.plan.shelf.note(buffers)
        before = self.pasts[task.seat]
        if before is None:
            assert changes is not None
            past = Past(changes)  # type: ignore[arg-type]  # the first one is complete
        elif changes is None:
            past = before
        else:
            past = replace(before, random=loader_random.merged(before.random, changes))
        if self.plan.is_iterable:
            past = replace(past, passed=past.passed + 1, index=task.index, state=state)
        self.pasts[task.seat] = past
        self.record.arrived(task.seat, task.index, timing)
        for one in raised:
            self._lose(one, task.number)
        if type(task.index) is list and task.index:
            self.last_good = task.index[0]
        return past

    def _lose(self, raised: Raised, batch: int) -> None:
        """An item that raised is tried again in the next epoch, and told once."""
        lost = LostItem(raised.index, batch, "python-exception", f"raised {raised.words}", raised.substitute)
        if self.record.lose_once(lost):
            self.quarantine.add_raised(lost.index, lost.how, raised.tries)
            log.info("%s", lost)

    def lent(self, buffers: list[Any]) -> list[Any]:
        """With those in place of which only the place on the shelf has come."""
        shelf = self.plan.shelf
        if shelf is None:
            return buffers
        return [shelf.lend(*one) if type(one) is tuple else one for one in buffers]

    def without_poison(self, index: Any) -> Any:
        """A batch's indices with what is known to kill left out or replaced. None: nothing is left."""
        if not self.plan.auto_collation:
            return self.poison.get(index, index) if _is_hashable(index) else index
        fates = [self.poison.get(one, one) if _is_hashable(one) else one for one in index]
        return [one for one in fates if one is not None] or None

    def substitute(self, index: Any, others: list[Any]) -> Any:
        """A good sample: from the same batch, else the last one that was, else the next in the dataset."""
        good = [one for one in others if not _is_hashable(one) or one not in self.poison]
        if good:
            return good[0]
        if self.last_good is not None and self.last_good not in self.poison:
            return self.last_good
        if isinstance(index, int) and isinstance(self.plan.dataset, Sized):
            size = len(self.plan.dataset)
            candidates = ((index + step) % size for step in range(1, size))
            return next((one for one in candidates if one not in self.poison), None)
        return None


class Batch(Task):
    """One batch in its seat."""

    __slots__ = ("deaths_at", "feed", "index", "is_lost", "number", "past", "positions", "told", "value")
    seat: int

    def __init__(self, feed: Feed, number: int, index: Any, seat: int) -> None:
        super().__init__(loader_worker.fetch, (index, []), label=number, seat=seat)
        self.feed = feed
        self.number = number
        self.index = index
        self.positions: list[list[int]] = []
        """Groups of suspects that are tried out first."""
        self.deaths_at: dict[int, int] = {}
        """By position, where one item is known to have killed: each has its own tries."""
        self.is_lost = False
        self.told: dict[int, str] = {}
        self.past: Past | None = None
        self.value: Any = None

    def succeeded(self, value: Fetched) -> None:
        self.past = self.feed.arrived(self, value)
        self.value = value
        self.feed.results.put(self)

    def failed(self, error: BaseException) -> None:
        if not self.is_lost:
            self.value = Died(error)
        elif self.feed.plan.is_iterable:
            self.value = torch_worker._IterableDatasetStopIteration(self.seat)
        else:
            self.value = Skipped()
        self.feed.results.put(self)

    def delivered(self) -> tuple[int, Any]:
        """For the trainer, on its thread."""
        value, self.value = self.value, None
        if type(value) is tuple:
            self.feed.is_large = sum(len(one) for one in value[1] if type(one) is not tuple) >= LARGE
            value = unpack(value[0], self.feed.lent(value[1]))
        if isinstance(value, torch_worker._IterableDatasetStopIteration):
            return self.number, value
        return self.number, Delivery(value, self.past)

    # Deaths

    def words(self, death: Death) -> str:
        """Asked for again when the death is explained, and the batch may have changed since."""
        if death.pid not in self.told:
            self.told[death.pid] = self._in_words(death)
        return self.told[death.pid]

    def count(self, death: Death) -> None:
        culprits = self._culprits(death)
        if len(culprits) != 1 or self.positions or self.feed.plan.is_iterable:
            super().count(death)
            return
        self.attempts = self.deaths_at[culprits[0]] = self.deaths_at.get(culprits[0], 0) + 1

    def killed(self, death: Death) -> None:
        self.words(death)

    def _in_words(self, death: Death) -> str:
        culprits = self._culprits(death)
        if self.feed.plan.is_iterable:
            return f"batch {self.number} of an iterable dataset"
        if len(culprits) == 1:
            return f"item {self._items()[culprits[0]]} in batch {self.number}"
        shown = ", ".join(str(self._items()[one]) for one in culprits[:SHOWN])
        return f"batch {self.number}, items {shown}{', …' if len(culprits) > SHOWN else ''}"

    def poisoned(self, death: Death, error: WorkerDied) -> bool:
        culprits = self._culprits(death)
        if len(culprits) > 1 and not self._is_beyond_probing(death):
            self._suspect(culprits)
            return True
        item = self._items()[culprits[0]] if len(culprits) == 1 else None
        if item is not None:
            error.item = str(item)
            self.label = item if isinstance(item, int) else self.label
        fate = self._fate(error, item, culprits)
        if fate is RAISE:
            return False
        for position in culprits:
            self._note(self._items()[position], fate, death)
        self._replace(culprits, fate)
        self.is_lost = self.index is None
        if self.is_lost:
            return False
        self.feed.quarantine.add(error, death)
        self._start_afresh()
        return True

    def _items(self) -> list[Any]:
        return list(self.index) if self.feed.plan.auto_collation else [self.index]

    def _culprits(self, death: Death) -> list[int]:
        """Positions of the items that it can have been."""
        if death.step == "running" and death.position >= 0:
            return [death.position]
        if death.step == "running" and death.position <= FIRST_PROBE:
            return self.positions[FIRST_PROBE - death.position]
        return list(range(len(self._items())))

    def _is_beyond_probing(self, death: Death) -> bool:
        """Each half has been tried, and lived: it is no single item's fault. Or there is no trying out items."""
        return self.feed.plan.is_iterable or (bool(self.positions) and death.position == WHOLE_BATCH)

    def _suspect(self, culprits: list[int]) -> None:
        middle = len(culprits) // 2
        self.positions = [culprits[:middle], culprits[middle:]]
        items = self._items()
        self.args = (self.index, [[items[one] for one in group] for group in self.positions])
        self.attempts = self.feed.policy.retries  # one more death says which half

    def _fate(self, error: WorkerDied, item: Any, culprits: list[int]) -> Any:
        """The index that takes its place; None: nothing does; RAISE."""
        action = self.feed.policy.on_poison
        if action == "raise":
            return RAISE
        if action == "skip" or self.feed.plan.is_iterable:
            return None
        if callable(action):
            return action(error)
        items = self._items()
        if item is not None and _is_hashable(item):
            self.feed.poison[item] = None
        substitute = self.feed.substitute(item, [one for at, one in enumerate(items) if at not in culprits])
        return RAISE if substitute is None else substitute

    def _note(self, item: Any, fate: Any, death: Death) -> None:
        if self.feed.plan.is_iterable:
            item = None
        elif _is_hashable(item):
            self.feed.poison[item] = fate
        self.feed.record.lose(LostItem(item, self.number, death.cause, death.words, fate))

    def _replace(self, culprits: list[int], fate: Any) -> None:
        if not self.feed.plan.auto_collation or self.feed.plan.is_iterable:
            self.index = fate
            return
        items = [fate if at in culprits else one for at, one in enumerate(self._items())]
        self.index = [one for one in items if one is not None] or None

    def _start_afresh(self) -> None:
        self.positions = []
        self.deaths_at = {}
        self.args = (self.index, [])
        self.attempts = 0


class Resume(Task):
    """A new epoch for a worker that stays."""

    __slots__ = ("feed", "order")
    seat: int

    def __init__(self, feed: Feed, order: Any, seat: int) -> None:
        super().__init__(loader_worker.resume, (order.seed,), seat=seat)
        self.feed = feed
        self.order = order

    def succeeded(self, value: Any) -> None:
        self.feed.resumed(self.seat, *value)
        self.feed.results.put(self)

    def failed(self, error: BaseException) -> None:
        self.order = Died(error)
        self.feed.results.put(self)

    def delivered(self) -> tuple[Any, Any]:
        if isinstance(self.order, Died):
            self.order.reraise()
        return self.order, None


RAISE = object()


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
