"""Which worker gets which tasks, and how many at a time. Plain bookkeeping of the owner's thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from lastwords.survive.handle import Functions, WorkerHandle
from lastwords.survive.tasks import Task

BATCH_NS = 24_000_000
"""Work that a worker has in hand, by measured times: enough to hide the supervisor's turn, little enough to share."""
MOST_AT_ONCE = 512
QUIET_PATIENCE = 5.0
"""Seconds. Longer than that one does not wait: the others may be waiting for something that is still in the queue."""
AHEAD = 2
"""Tasks in hand, however long they take: one runs, the next is there when it ends (and can be taken back)."""
WEIGHT = 0.2
"""Of the newest measurement in the running mean of a task's time."""


class Seat:
    """A worker's place. Processes come and go in it; tasks that are meant for it wait here."""

    __slots__ = ("beside", "directed", "index", "is_held", "is_lonely_handed", "lonely", "worker")

    def __init__(self, index: int) -> None:
        self.index = index
        self.worker: WorkerHandle | None = None
        self.directed: deque[Task] = deque()
        self.lonely: Task | None = None
        """A task that has killed: the seat takes no other until a fresh worker has run it."""
        self.is_lonely_handed = False
        self.beside = 0
        """Others with something to do when that task was handed over."""
        self.is_held = False
        """A task of its own has killed, and what becomes of it is not decided: those behind it wait."""

    def be_together_again(self) -> None:
        self.lonely = None
        self.is_lonely_handed = False

    @property
    def in_hand(self) -> int:
        return len(self.worker.in_hand) if self.worker is not None else 0

    @property
    def load(self) -> int:
        """For how many tasks those in hand count."""
        return self.worker.load if self.worker is not None else 0


class Dispatch:
    def __init__(self, seats: int, functions: Functions, tasks_per_worker: int | None) -> None:
        self.seats = [Seat(index) for index in range(seats)]
        self.queue: deque[Task] = deque()
        """For any worker. Others append to it from their threads; only the owner takes from it."""
        self._functions = functions
        self._tasks_per_worker = tasks_per_worker
        self._lonely: deque[Task] = deque()
        self._quiet: dict[Task, float] = {}
        """Lonely ones that shall have the machine for themselves, and until when they wait for the others to end."""
        self.side_by_side: int | None = None
        """How many workers may have tasks at the same time; None: all."""
        self.one_by_one = False
        """A worker gets its next task when it has finished one."""
        self.done = 0
        self.refuses: Callable[[Task], bool] | None = None
        """Whether it is not to be run at all; it has been told so then."""
        self.on_lived: Callable[[Task, int], object] | None = None
        """Told of a task that has run alone and has not killed, and how many others had something to do beside it."""
        self._are_some_loose = False
        """There were tasks that any worker may run."""
        self._pace: float | None = None
        """Nanoseconds that a task takes."""

    # What there is to do

    def direct(self, task: Task) -> None:
        assert task.seat is not None
        self.seats[task.seat].directed.append(task)

    def alone(self, task: Task, *, is_quiet: bool = False) -> None:
        """In a fresh worker; `is_quiet`: and with nothing beside it."""
        self._lonely.append(task)
        if is_quiet:
            self._quiet[task] = time.monotonic() + QUIET_PATIENCE

    def again(self, tasks: list[Task], seat: Seat) -> None:
        """Unfinished and innocent: first in line, in their old order."""
        if tasks and tasks[0].seat is not None:
            seat.directed.extendleft(reversed(tasks))
        else:
            self.queue.extendleft(reversed(tasks))

    def has_work(self) -> bool:
        if self.queue or self._lonely:
            return True
        return any(seat.in_hand or seat.directed or seat.lonely is not None for seat in self.seats)

    def count_unfinished(self) -> int:
        waiting = sum(task.size for task in list(self.queue)) + len(self._lonely)
        return waiting + sum(
            seat.load + len(seat.directed) + (seat.lonely is not None and not seat.is_lonely_handed)
            for seat in self.seats
        )

    def _waiting(self) -> int:
        """Tasks in the queue. Only the first one is looked at: others may count for several, too, but that is enough."""
        return len(self.queue) + self.queue[0].size - 1 if self.queue else 0

    def take_queued(self) -> list[Task]:
        """All that no worker has."""
        tasks = list(self._drain(self.queue))
        for seat in self.seats:
            tasks += self._drain(seat.directed)
        return tasks

    def take_waiting(self) -> list[Task]:
        """All that no worker has, those that wait to be alone among them."""
        lonely = [seat for seat in self.seats if seat.lonely is not None and not seat.is_lonely_handed]
        tasks = [seat.lonely for seat in lonely if seat.lonely is not None]
        for seat in lonely:
            seat.be_together_again()
        return [*tasks, *self._drain(self._lonely), *self.take_queued()]

    def take_all(self) -> list[Task]:
        held = [one[0] for seat in self.seats if seat.worker for one in seat.worker.in_hand.values()]
        waiting = self.take_waiting()
        for seat in self.seats:
            if seat.worker is not None:
                seat.worker.in_hand.clear()
                seat.worker.load = 0
            seat.be_together_again()
        return [*held, *waiting]

    @staticmethod
    def _drain(tasks: deque[Task]) -> Iterator[Task]:
        while tasks:
            yield tasks.popleft()

    # Who is there

    def vacant(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.worker is None]

    def wanted(self) -> list[Seat]:
        """Vacant seats for which there is work: as many as there are tasks that nobody has room for."""
        vacant = self.vacant()
        if not vacant:
            return []
        own = [seat for seat in vacant if seat.directed or seat.lonely is not None]
        coming = sum(seat.worker is not None and not seat.in_hand for seat in self.seats)
        need = self._waiting() + len(self._lonely) - coming - len(own)
        others = [seat for seat in vacant if seat not in own]
        return own + others[: max(0, need)]

    def is_hungry(self) -> bool:
        """Could anything be done about one more task?"""
        return any(seat.worker is None or self._room(seat) for seat in self.seats)

    def is_any_starting(self) -> bool:
        return any(seat.worker is not None and seat.worker.is_starting for seat in self.seats)

    def is_anybody_busy(self) -> bool:
        return any(seat.in_hand for seat in self.seats)

    def count_others(self, seat: Seat) -> int:
        return sum(other.worker is not None for other in self.seats if other is not seat)

    def is_batched(self) -> bool:
        return any(seat.load > 1 or seat.in_hand > 1 for seat in self.seats)

    def is_disturbed(self) -> bool:
        """There is more to do than to hand tasks to their own seats, where workers take them."""
        if self.queue or self._lonely or self._quiet or self.side_by_side is not None or self.one_by_one:
            return True
        return any(
            seat.lonely is not None
            or seat.is_held
            or (bool(seat.directed) if seat.worker is None else not seat.worker.flush())
            for seat in self.seats
        )

    def retire_all(self) -> None:
        for seat in self.seats:
            if seat.worker is not None and not seat.worker.is_retiring:
                seat.worker.stop()

    # Handing out

    def fill(self) -> None:
        self._seat_the_lonely()
        if self._quiet:
            lonely = {*self._lonely, *(seat.lonely for seat in self.seats)}
            self._quiet = {task: until for task, until in self._quiet.items() if task in lonely}
        self.fill_seats()
        while self.queue:
            self._are_some_loose = True
            open_seats = [seat for seat in self.seats if self._room(seat)]
            if not open_seats or not self._hand_round(open_seats):
                break
        for seat in self.seats:
            self._retire_if_spent(seat)

    def fill_seats(self) -> None:
        """With the tasks that are meant for them alone."""
        for seat in self.seats:
            if seat.directed and (room := self._room(seat)):
                self._hand(seat, seat.directed, room)

    def _hand_round(self, seats: list[Seat]) -> int:
        """An equal share for each, those with the least in hand first. How many tasks found their worker."""
        seats.sort(key=lambda seat: seat.load)
        share = max(1, self._waiting() // len(seats))
        return sum(self._hand(seat, self.queue, min(share, self._room(seat))) for seat in seats if self.queue)

    def _room(self, seat: Seat) -> int:
        """How many more tasks it may be handed; 0 while more than half of its last share is still there."""
        worker = seat.worker
        if worker is None or worker.is_retiring or not worker.is_serving:
            return 0
        if seat.lonely is not None or seat.is_held:
            return 0
        if self._quiet or not self._may_work(seat):
            return 0
        window = self._window()
        room = window - worker.load
        if room * 2 < window:
            return 0
        if self._tasks_per_worker is not None:
            room = min(room, self._tasks_per_worker - worker.served)
        return max(room, 0)

    def _may_work(self, seat: Seat) -> bool:
        if self.side_by_side is None or seat.in_hand:
            return True
        return sum(bool(other.in_hand) for other in self.seats) < self.side_by_side

    def _window(self) -> int:
        if self._pace is None or self.one_by_one:
            return 1
        return max(AHEAD, min(MOST_AT_ONCE, int(BATCH_NS / max(self._pace, 1.0))))

    def _hand(self, seat: Seat, queue: deque[Task], most: int) -> int:
        tasks: list[Task] = []
        while queue and most > 0:
            task = queue.popleft()
            if self.refuses is not None and self.refuses(task):
                continue
            if task.begins():
                if task.size > most:
                    task, rest = task.cut(most)
                    queue.appendleft(rest)
                tasks.append(task)
                most -= task.size
        if not tasks or seat.worker is None:
            return 0
        refused = seat.worker.hand(tasks, self._functions)
        queue.extendleft(reversed(refused))
        return len(tasks) - len(refused)

    def _retire_if_spent(self, seat: Seat) -> None:
        worker = seat.worker
        if worker is None or worker.is_retiring or self._tasks_per_worker is None:
            return
        if worker.served >= self._tasks_per_worker and not worker.in_hand:
            worker.stop()

    # Tasks that have killed

    def _seat_the_lonely(self) -> None:
        while self._lonely:
            seat = self._seat_for(self._lonely[0])
            if seat is None:
                break
            seat.lonely = self._lonely.popleft()
            seat.is_held = False
        for seat in self.seats:
            if seat.lonely is not None and self.side_by_side != 0:
                self._run_alone(seat)

    def _seat_for(self, task: Task) -> Seat | None:
        """Its own, or else a fresh worker's, or else the one that is done soonest."""
        if task.seat is not None:
            seat = self.seats[task.seat]
            return seat if seat.lonely is None else None
        free = [seat for seat in self.seats if seat.lonely is None]
        return min(free, key=_disturbance, default=None)

    def _run_alone(self, seat: Seat) -> None:
        worker = seat.worker
        if worker is None or worker.is_retiring or not worker.is_serving or worker.in_hand:
            return
        if worker.served:
            worker.stop()  # a fresh one takes its place
            return
        assert seat.lonely is not None
        if not self._is_quiet_enough(seat.lonely):
            return
        is_wanted = seat.lonely.begins()
        has_no_room = is_wanted and bool(worker.hand([seat.lonely], self._functions))
        if worker.in_hand:
            seat.is_lonely_handed = True
            seat.beside = sum(bool(other.in_hand) for other in self.seats if other is not seat)
        elif not has_no_room:
            seat.be_together_again()  # cancelled, or it cannot be pickled

    def _lived(self, seat: Seat) -> None:
        task = seat.lonely
        seat.be_together_again()
        if task is not None and self.on_lived is not None:
            self.on_lived(task, seat.beside)

    def _is_quiet_enough(self, task: Task) -> bool:
        until = self._quiet.get(task)
        if until is None or not any(seat.in_hand for seat in self.seats):
            return True
        return time.monotonic() >= until

    def retire(self, seat: Seat) -> None:
        """After the task that it runs: a fresh one takes its place."""
        worker = seat.worker
        if worker is not None and not worker.is_retiring:
            self.again(worker.take_back(worker.load), seat)
            worker.stop()

    def is_held_back(self) -> bool:
        """Somebody waits for others to finish, for time to pass or for a pipe, and no event will tell."""
        return bool(self._quiet) or self.side_by_side is not None or not self._flush_all()

    def _flush_all(self) -> bool:
        are_flushed = [seat.worker is None or seat.worker.flush() for seat in self.seats]
        return all(are_flushed)

    # Results

    def collect(self, seat: Seat, worker: WorkerHandle) -> int:
        count, nanoseconds = worker.hear()
        if worker.unfinished:
            self.again(worker.unfinished, seat)
            worker.unfinished = []
        if count:
            self.done += count
            mean = nanoseconds / count
            self._pace = mean if self._pace is None else self._pace + WEIGHT * (mean - self._pace)
        if seat.is_lonely_handed and not worker.in_hand:
            self._lived(seat)
        if self._are_some_loose and not worker.in_hand:
            self.share_out()
        return count

    def share_out(self) -> None:
        """Some have nothing to do, and others hold tasks that they have not begun: those come back into the queue."""
        if self.queue:
            return
        idle = [seat for seat in self.seats if not seat.in_hand and self._room(seat)]
        vacant = self.vacant()
        most = len(idle) + len(vacant)
        if not most:
            return
        loaded = sorted((seat for seat in self.seats if seat.load > 1), key=lambda seat: -seat.load)
        for seat in loaded:
            assert seat.worker is not None
            taken = seat.worker.take_back(max(1, seat.load // (most + 1)))
            for task in taken:
                (self.seats[task.seat].directed if task.seat is not None else self.queue).append(task)


def _disturbance(seat: Seat) -> tuple[bool, int]:
    worker = seat.worker
    return worker is not None and bool(worker.served), seat.in_hand


__all__ = ["Dispatch", "Seat"]
