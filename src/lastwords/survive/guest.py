"""Who takes the supervisor's turns: its own thread, or a guest that would only wait for it.

A trainer that waits for a batch is woken by the supervisor's thread, which a worker has woken; its next order wakes the
thread again. Four changes of thread and of Python's lock for each batch: as much as all else that is done for a small
one. So while nothing is unusual, whoever waits hears the results and hands out the orders itself. Deaths, limits and words
from others are the thread's, and beginnings above all: the kernel ends a worker with the thread that started it.
"""

# ruff: noqa: SLF001  # a guest does a part of the supervisor's work, and with its hands

from __future__ import annotations

import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from lastwords.survive.breaker import CLOSED

if TYPE_CHECKING:
    from lastwords.survive.supervisor import Supervisor
    from lastwords.survive.tasks import Task

PATIENCE = 0.05
"""Seconds without a visit, after which the thread takes its turns itself again."""


class Chair:
    """Whoever sits in it takes the turns. The owner makes way for a guest, and comes back when it is called, or when
    nobody has come for a while.
    """

    def __init__(self) -> None:
        # It knows who holds it: a signal handler that raises may cut a guest short before he has noted that he sits.
        self._lock: Any = threading.RLock()
        self._call = threading.Event()
        self._visits = 0
        self._is_left = self.is_taken = False
        self.is_wanted = False
        """By a guest: the owner makes way after its turn."""

    def sit_down(self) -> None:
        self._lock.acquire()

    def stand_up(self) -> None:
        self._lock.release()

    def leave_for_a_while(self) -> None:
        """For the owner, between two turns."""
        self.is_wanted = False
        self._call.clear()
        self._is_left = True
        self._lock.release()
        seen = -1
        # A guest that waits for one slow batch is still there: to come back for each would wake two threads more.
        while not self._call.wait(PATIENCE) and (self._visits != seen or self.is_taken):
            seen = self._visits
        self._lock.acquire()
        self._is_left = False

    def call_back(self) -> None:
        if self._is_left:
            self._call.set()

    @property
    def is_mine(self) -> bool:
        """This thread's."""
        return bool(self._lock._is_owned())

    def visit(self, timeout: float = 0) -> bool:
        """For a guest. False: it is taken, for longer than that."""
        if self.is_mine:
            return True
        is_free: bool = self._lock.acquire(timeout=timeout) if timeout else self._lock.acquire(blocking=False)
        self._visits += is_free
        return is_free


def make_way(supervisor: Supervisor) -> None:
    """By the owner, if there is a guest, and nobody has left a note since it has read them."""
    if supervisor._chair.is_wanted:
        supervisor._is_asleep = True
        if not supervisor._notes:
            supervisor._chair.leave_for_a_while()
        supervisor._is_asleep = False


class Guest:
    """For one thread at a time, between `come` and `go`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._chair = supervisor._chair
        self._is_seated = False

    def come(self) -> None:
        """If nobody is disturbed by it."""
        if self._chair.visit():
            self._sit()

    def get(self, results: queue.SimpleQueue[Any], timeout: float) -> Any:
        """The next one that is put there; raises queue.Empty. Takes turns meanwhile, where that is all there is to do."""
        end = time.monotonic() + timeout
        if not self._is_seated and results.empty():
            self._ask(timeout)
        while self._is_seated and results.empty():
            left = end - time.monotonic()
            if left <= 0:
                raise queue.Empty
            if not self._take_turn(left):
                self._hand_back()
        return results.get(timeout=max(0.0, end - time.monotonic()))

    def submit(self, task: Task) -> None:
        """To its own seat. Not before those that the owner has not read of yet."""
        if self._is_seated and not self._supervisor._notes:
            self._supervisor._dispatch.direct(task)
        else:
            self._supervisor.submit(task)

    def return_blocks(self) -> None:
        """Those that nobody uses any more, to the workers."""
        if self._is_seated:
            self._supervisor._return_blocks()
        else:
            self._supervisor.note(self._supervisor._return_blocks)

    def go(self) -> None:
        """What was ordered meanwhile is handed out first."""
        if self._chair.is_mine:
            if not self._supervisor._notes and self._supervisor.broken is None:
                self._supervisor._dispatch.fill_seats()
            self._stand_up()

    def leave(self) -> None:
        """In the middle of a visit. What there is to do is the owner's."""
        if self._chair.is_mine:
            self._stand_up()

    def _sit(self) -> None:
        self._is_seated = self._chair.is_taken = True
        self._supervisor._is_asleep = False

    def _stand_up(self) -> None:
        self._is_seated = self._chair.is_taken = False
        supervisor = self._supervisor
        supervisor._is_asleep = True
        self._chair.stand_up()
        if supervisor._notes:
            supervisor._wake()

    def _hand_back(self) -> None:
        self._stand_up()
        self._chair.call_back()

    def _ask(self, timeout: float) -> None:
        """The owner has the chair, and takes its turns: it is asked to make way after this one."""
        self._chair.is_wanted = True
        if self._supervisor._is_asleep:
            self._supervisor._wake()
        is_free = self._chair.visit(timeout)
        # Also where it was free already: an owner that is called back would leave at once, for a guest that has gone.
        self._chair.is_wanted = False
        if is_free:
            self._sit()

    def _take_turn(self, timeout: float) -> bool:
        """False: there is more to do than to hear results and to hand out tasks."""
        supervisor = self._supervisor
        if not self._is_all_as_usual():
            return False
        supervisor._dispatch.fill_seats()
        supervisor._is_asleep = True
        until_look = supervisor._limits.next_look - time.monotonic()
        wait = 0.0 if supervisor._notes else max(0.0, min(timeout, until_look))
        events = supervisor._epoll.poll(wait)
        supervisor._is_asleep = False
        return self._hear(events)

    def _hear(self, events: list[tuple[int, int]]) -> bool:
        supervisor = self._supervisor
        are_usual = True
        for descriptor, _ in events:
            if descriptor == supervisor._bell:
                os.eventfd_read(descriptor)  # what there is to say is in the notes
                continue
            seat, worker = supervisor._by_descriptor[descriptor]
            if descriptor == worker.pidfd or not worker.empty_bell():
                are_usual = False  # an end, of which epoll tells the owner again
            else:
                supervisor._collect(seat, worker)
        return are_usual

    def _is_all_as_usual(self) -> bool:
        supervisor = self._supervisor
        dispatch = supervisor._dispatch
        return not (
            supervisor._notes
            or supervisor._later
            or supervisor._to_explain
            or supervisor._is_stopping
            or supervisor.broken is not None
            or supervisor._has_ended
            or supervisor._breaker.state is not CLOSED
            or time.monotonic() >= supervisor._limits.next_look
            or dispatch.is_disturbed()
        )
