"""What a worker may use: seconds for a task, bytes for itself. Looked at by the owner's thread, from outside.

Looking costs one small file of /proc for each worker, some times a second and only while there is work.
"""

from __future__ import annotations

import sys
import time

from lastwords.survive import channel, worker
from lastwords.survive.deaths import Sentence
from lastwords.survive.policy import HUNG, OUT_OF_MEMORY, Policy
from lastwords.survive.weight import own_bytes, private_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from lastwords.survive.dispatch import Seat
    from lastwords.survive.handle import WorkerHandle

SELDOM, OFTEN = 0.25, 0.02
"""Seconds between two looks at the memory; often, where some worker has used half of what it may."""
POLITE = 0.9
"""Of the limit, and kept after the task that asked for it: a fresh worker takes over between two tasks."""
WORTH_GUARDING = 64 << 20
"""Bytes by which a worker must have grown before we ask what the machine has left."""
NEARLY_FULL = 0.9
_TIMED_STEPS = (worker.SETTING_UP, worker.ENDING)


class Limits:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._next_look = 0.0
        self._growth = 0
        """Bytes: the most by which any worker was ever seen to have grown."""
        self.is_tight = False
        """The machine, or the control group, has no room for one more task like the largest."""

    def due(self, seats: Iterable[Seat]) -> float:
        """Seconds until there is something to look at; less than 0: never, as things are."""
        busy = [seat.worker for seat in seats if seat.worker is not None and _is_busy(seat.worker)]
        if not busy:
            return -1
        soonest = self._next_look - time.monotonic()
        if self._policy.timeout is not None:
            soonest = min(soonest, *map(self._time_left, busy))
        return max(soonest, 0.001)

    @property
    def next_look(self) -> float:
        """At the memory, by `time.monotonic()`."""
        return self._next_look

    # Time

    def overdue(self, seats: Iterable[Seat]) -> list[tuple[WorkerHandle, Sentence]]:
        """Workers whose time is up; each is named once."""
        if self._policy.timeout is None:
            return []
        workers = [seat.worker for seat in seats if seat.worker is not None]
        return [
            (one, self._sentence_of_time(one))
            for one in workers
            if one.sentence is None and _is_timed(one) and self._time_left(one) <= 0
        ]

    def _time_left(self, one: WorkerHandle) -> float:
        assert self._policy.timeout is not None
        if one.sentence is not None or not _is_timed(one):
            return self._policy.timeout
        return self._policy.timeout - (time.monotonic_ns() - _since(one)) / 1e9

    def _sentence_of_time(self, one: WorkerHandle) -> Sentence:
        words = f"was ended after {self._policy.timeout:g} s, which is all that the policy allows,"
        return Sentence(one.running()[0], HUNG, words, _since(one))

    # Memory

    def weigh(self, seats: list[Seat]) -> list[tuple[Seat, Sentence | None]]:
        """Seats whose worker has to go: at once, by the sentence, or (None) after the task that it runs."""
        now = time.monotonic()
        if now < self._next_look:
            return []
        found: list[tuple[Seat, Sentence | None]] = []
        largest = 0
        for seat in seats:
            if seat.worker is None or not seat.worker.is_serving:
                continue
            used = own_bytes(seat.worker.pid)
            largest = max(largest, used)
            sentence, is_outgrown = self._verdict(seat.worker, used)
            if sentence is not None or (is_outgrown and not seat.worker.is_retiring):
                found.append((seat, sentence))
        limit = self._policy.memory_limit
        self._next_look = now + (OFTEN if limit is not None and largest > limit // 2 else SELDOM)
        self.is_tight = self._growth > WORTH_GUARDING and _has_no_room_for(self._growth)
        return found

    def _verdict(self, one: WorkerHandle, used: int) -> tuple[Sentence | None, bool]:
        """Why it has to go at once, if it has; whether it has to go when its task is done."""
        self._growth = max(self._growth, used - one.words[channel.BORN])
        limit = self._policy.memory_limit
        # Under fork the parent's pages are counted too, until the kernel is asked for the worker's own: that is
        # slow with much memory, so only where it decides.
        if limit is not None and used > limit and (own := private_bytes(one.pid)) > limit:
            words = f"was ended with {own / 1e6:,.0f} MB of its own, over its limit of {limit / 1e6:,.0f} MB,"
            return Sentence(one.running()[0], OUT_OF_MEMORY, words), False
        return None, self._is_outgrown(one)

    def _is_outgrown(self, one: WorkerHandle) -> bool:
        """What a task uses and gives back does not count: only what the worker has between two of them."""
        limit, growth, words = self._policy.memory_limit, self._policy.recycle, one.words
        if growth is not None and words[channel.RESTING] - words[channel.BORN] > growth:
            return True
        return limit is not None and words[channel.RESTING_PRIVATE] > limit * POLITE


def has_got_on(one: WorkerHandle, sentence: Sentence) -> bool:
    """Since the sentence was passed. By time, not by its task: one that was stopped right after a task is at none."""
    if sentence.cause == HUNG:
        return not _is_timed(one) or _since(one) != sentence.since
    return one.running()[0] != sentence.number


def polite_bytes(policy: Policy) -> int | None:
    """From where on a worker has to know what it really has; None: nobody asks."""
    if policy.memory_limit is not None:
        return round(policy.memory_limit * POLITE)
    return None if policy.recycle is None else sys.maxsize


def _is_timed(one: WorkerHandle) -> bool:
    """It is at something, or ought to be: a process that was stopped between two tasks begins none, and never ends."""
    return _is_at_something(one) or (one.is_serving and (bool(one.in_hand) or one.is_retiring))


def _since(one: WorkerHandle) -> int:
    began: int = one.words[channel.BEGAN]
    return began if _is_at_something(one) else max(one.handed_ns, began)


def _is_at_something(one: WorkerHandle) -> bool:
    return bool(one.words[channel.RUNNING]) or one.words[channel.STEP] in _TIMED_STEPS


def _is_busy(one: WorkerHandle) -> bool:
    """Or may become so without telling anybody: one that starts comes to its initializer."""
    is_between = one.is_starting or one.is_retiring
    return is_between or bool(one.in_hand) or one.words[channel.STEP] in _TIMED_STEPS


def _has_no_room_for(growth: int) -> bool:
    from lastwords import postmortem

    left = postmortem.memory_left()
    return left is not None and left[0] < growth and left[0] < (1 - NEARLY_FULL) * left[1]
