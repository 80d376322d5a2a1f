"""Places for large batches that all workers of a loader share.

In a memory of its own each worker needs one place more than it makes batches ahead, for the batch that the trainer still
has: with eight workers that is eight, and one of them is in use. Here whoever builds a batch takes any place that is free,
and the trainer frees it when the last tensor there is gone. Nobody waits and nobody is told: a place is a byte that one of
them claims. So no more pages are touched than batches are there at the same time, which is what torch's loader has, too.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

from lastwords.recording import Claims
from lastwords.survive import descriptors
from lastwords.survive.blocks import PAGE, window

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGE = 1 << 20
"""Bytes of a column that is worth a place of its own."""
SPARE = 3
"""Places beyond the batches that are made ahead and the trainer's, for a user who keeps some more. Whoever keeps many has the
rest from the workers' own memories.
"""
WORTH_WAITING = 2 << 20
"""Bytes of fresh pages that take a millisecond: measured at 2 µs for each 4 KiB."""
SPAN = 1 << 34
"""Of all places. Address space, not memory: a memfd has no page that was never written."""
PLACES_AT = 2 * PAGE
MOST_USUAL = 256
AGREEING = PAGE - 1
"""The claim of whoever says how far places lie apart."""
# Words of the second page: that distance; how many places were ever used; and from OWNERS on, for each place, the worker
# that builds there, counted from 1.
DISTANCE, REACHED, OWNERS = range(3)

Place = tuple[int, int]
"""Its number, and the length of what lies there."""


class _Loan(weakref.ref):  # type: ignore[type-arg]  # of a ctypes array
    __slots__ = ("place",)
    place: int


def new_shelf(batches_ahead: int) -> Shelf | None:
    """For a loader with so many batches on their way. None: this process may not have that much address space."""
    descriptor = os.memfd_create("lastwords-batches", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, PLACES_AT + SPAN)
        return Shelf(descriptor, min(batches_ahead + 1, MOST_USUAL))
    except (OSError, ValueError, OverflowError):
        os.close(descriptor)
        return None


class Shelf:
    def __init__(self, descriptor: int, usual: int) -> None:
        """`usual`: batches that there are at the same time. The descriptor is this object's from now on."""
        self._memory = mmap.mmap(descriptor, PLACES_AT + SPAN)
        self._claims = Claims(descriptor, PAGE)
        self._words = memoryview(self._memory)[PAGE : 2 * PAGE].cast("q")
        self._usual = usual
        self._places = usual + SPARE
        self._descriptor = descriptor
        self._process = os.getpid()
        descriptors.hold(descriptor)
        self._close = weakref.finalize(self, _close, descriptor, self._process)
        self._close.atexit = False
        self._is_closed, self._distance = False, 0
        self._arrived: set[int] = set()
        """Places of batches that the trainer has, or will be given."""
        self._loans: dict[int, _Loan] = {}
        self._seat = -1
        self._visited: dict[int, None] = {}
        self._built: set[int] = set()
        """Places that this worker has taken since it last told of one."""

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.reduction import DupFd

        return _received, (DupFd(self._descriptor), self._usual)

    # In a worker

    def sit_down(self, seat: int) -> None:
        self._seat = seat

    def take(self, length: int) -> int | None:
        """A place for that many bytes. None: there is none that is free, or theirs is another size."""
        distance = self._words[DISTANCE] or self._agree_on(length)
        if not distance // 4 < length <= distance:
            return None
        place = self._claim(max(self._usual, self._words[REACHED]))
        return self._claim_in_the_end(length) if place is None else place

    def buffer(self, place: int, length: int) -> Any:
        return window(self._memory, PLACES_AT + place * self._words[DISTANCE], length)

    def keep(self, buffers: Iterable[Any]) -> None:
        """What a worker is about to send. All else that it has taken is given up."""
        sent = {one[0] for one in buffers if type(one) is tuple}
        for place in self._built - sent:
            self._free(place)
        self._built.clear()

    def _claim(self, among: int) -> int | None:
        """One that is free of the first so many; if it can be, where this worker has been before: it has those pages mapped."""
        others = (place for place in range(min(among, self._places)) if place not in self._visited)
        for place in (*self._visited, *others):
            if self._claims.claim(place):
                self._visited[place] = None
                self._words[OWNERS + place] = self._seat + 1
                self._words[REACHED] = max(self._words[REACHED], place + 1)
                self._built.add(place)
                return place
        return None

    def _claim_in_the_end(self, length: int) -> int | None:
        """One that nobody has used yet, which takes longer than to wait for a moment.

        Most often the trainer was interrupted just before it let its last batch go, by us: its order has woken us.
        """
        for _ in range(length // WORTH_WAITING):
            time.sleep(0.001)
            place = self._claim(max(self._usual, self._words[REACHED]))
            if place is not None:
                return place
        return self._claim(self._places)

    def _agree_on(self, length: int) -> int:
        """Twice the first one's: a later one may be larger, and pages that are never written cost nothing."""
        distance = 2 * (-(-length // PAGE) * PAGE)
        if length >= LARGE and self._places * distance <= SPAN and self._claims.claim(AGREEING):
            self._words[DISTANCE] = distance
        return self._words[DISTANCE]

    # In the trainer's process

    def note(self, buffers: Iterable[Any]) -> None:
        """A batch has arrived."""
        self._arrived.update(one[0] for one in buffers if type(one) is tuple)

    def lend(self, place: int, length: int) -> Any:
        """A writable buffer over a batch that has arrived. Its place is free when nobody has the buffer any more."""
        if not 0 <= place < self._places or not 0 < length <= self._words[DISTANCE] <= SPAN // self._places:
            raise ValueError("a worker that has written over its own memory says so")
        buffer = self.buffer(place, length)
        loan = self._loans[place] = _Loan(buffer, self._has_ended)
        loan.place = place
        return buffer

    def reclaim(self, seat: int) -> None:
        """What the worker there was at when it ended. All that it had finished has arrived."""
        for place in range(self._places):
            if self._words[OWNERS + place] == seat + 1 and place not in self._arrived:
                self._free(place)

    def close(self) -> None:
        """The workers have ended. What is lent stays, until it is not used any more."""
        self._is_closed = True
        self._close()
        self._distance = self._words[DISTANCE]
        for place in set(range(self._places)) - self._loans.keys():
            self._give_up_pages(place)
        self._words.release()
        with contextlib.suppress(BufferError):  # the mapping goes with the last loan
            self._memory.close()

    def _has_ended(self, loan: _Loan) -> None:
        if self._process != os.getpid():
            return  # a fork has copies of batches, and lets go of them; the trainer has not
        del self._loans[loan.place]
        self._arrived.discard(loan.place)
        if self._is_closed:
            self._give_up_pages(loan.place)
        else:
            self._free(loan.place)

    def _free(self, place: int) -> None:
        # First the owner: whoever claims it next dies, perhaps, before his own name is there.
        self._words[OWNERS + place] = 0
        self._claims.reset(place, 1)

    def _give_up_pages(self, place: int) -> None:
        if 0 < self._distance <= SPAN // self._places:
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_REMOVE, PLACES_AT + place * self._distance, self._distance)


def _received(descriptor: Any, usual: int) -> Shelf:
    return Shelf(descriptor.detach(), usual)


def _close(descriptor: int, process: int) -> None:
    if process == os.getpid():  # in a fork the number stands for another file by now
        descriptors.close(descriptor)
