"""One worker process, from the supervisor's side: starting it, handing it tasks, hearing its results."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing.process as process_module
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.context import BaseContext
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from lastwords import recording
from lastwords.survive import channel, descriptors, forked, pickling, rehearsal, worker
from lastwords.survive.blocks import Blocks, Lending
from lastwords.survive.deaths import Sentence
from lastwords.survive.tasks import Task

MOST_FUNCTIONS = 1024
MOST_RINGS = 4096
"""Of a bell, heard at once."""
Lend = Callable[[mmap.mmap, int], Lending]
"""Makes what lends a worker's large results: its memory, and how many bytes of them may be lent."""
NOTHING: Any = object()
"""No task's function, not even a mistaken one's."""


class Functions:
    """Functions that tasks call, numbered. Those that a name stands for, and that have no state which could change, are
    pickled once and not with every task.
    """

    def __init__(self) -> None:
        self._known: dict[Any, tuple[int, bytes]] = {}
        self._next = 0

    def number(self, work: Callable[..., Any]) -> tuple[int, bytes]:
        """Raises what pickling it raises."""
        if not _is_known_by_name(work):
            return channel.NO_FUNCTION, b""
        found = self._known.get(work)
        if found is None:
            if len(self._known) >= MOST_FUNCTIONS:
                self._known.clear()
            found = self._known[work] = (self._next, pickle.dumps(work, 5))
            self._next += 1
        return found


def _is_known_by_name(work: Callable[..., Any]) -> bool:
    if type(work) is BuiltinFunctionType:
        return isinstance(work.__self__, ModuleType)  # `values.count` is one, too, and `values` may change
    return type(work) is FunctionType


InHand = tuple[Task, list[int], list[tuple[int, int]]]
"""A task that a worker holds; its batch, as where that lies, how many of it are still held, and which one it is; its
large arguments.
"""


class WorkerHandle:
    def __init__(
        self,
        seat: int,
        context: BaseContext,
        settings: worker.Settings,
        setup: worker.Setup | None,
        lending: Lend | None = None,
    ) -> None:
        """Starts it. Raises what `Process.start` raises: set-up that cannot be pickled, no more processes."""
        self.seat = seat
        self.in_hand: dict[int, InHand] = {}
        self.load = 0
        """For how many tasks those count that it has in hand."""
        self.unfinished: list[Task] = []
        """What it has handed back: somebody is to take it up."""
        self.served = 0
        """Tasks that it was handed since its birth."""
        self.is_retiring = False
        self.refusal: BaseException | None = None
        """What its set-up raised."""
        self.box: str | None = None
        self._held_box: int | None = None
        self.handed_ns = 0
        """When it was last told something while it had nothing to do."""
        self.sentence: Sentence | None = None
        """It has used more than it may, and is going to be ended."""
        self._functions: set[int] = set()
        self._next = 1
        self._wanted = 0
        self._unsent: deque[bytes] = deque()
        self._sent_batches = 0
        self._unread: list[tuple[int, int]] = []
        """Batches that were taken back as a whole: which one it was, and where it lies until the worker has read it."""
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as ends:
            descriptor, self._memory = channel.new_memory()
            undo.callback(self._memory.close)
            ends.callback(os.close, descriptor)
            frames, self._frames = _new_pipe(undo, ends, is_ours_the_writing_end=True)
            bell, self.bell = _new_pipe(undo, ends, is_ours_the_writing_end=False)
            handover = worker.Handover(self._memory, descriptor, frames, bell)
            self.process = _start(context, seat, (seat, handover, settings, setup))
            self.pid = int(self.process.pid)
            undo.callback(_abandon, self.process)
            self.pidfd = descriptors.hold_end_of(self.pid)
            undo.pop_all()
        self._claims = self._memory.claims
        self.words = self._memory.words
        self._blocks = Blocks(self._memory.memory, channel.TASKS_AT, self._memory.span, settings.budget)
        self._lending = (lending or Lending)(self._memory.memory, settings.budget // 2)
        self._pack = pickling.Packer(self._place, self._blocks.give_back)
        self.memory_kills = recording.memory_kills(self.pid)

    @property
    def is_serving(self) -> bool:
        return self.words[channel.READY] == channel.SERVING

    @property
    def is_starting(self) -> bool:
        return self.words[channel.READY] == channel.STARTING

    @property
    def has_news(self) -> bool:
        return self.words[channel.WRITTEN] != self.words[channel.READ]

    def find_box(self, run: recording.RunOfWorkers) -> None:
        """While it lives. Where `lastwords run` watches, too, that one moves the box when its worker dies: we hold it."""
        self.box = run.box_of(self.pid)
        if self.box is not None and run.is_watched:
            with contextlib.suppress(OSError):
                self._held_box = os.open(self.box, os.O_RDONLY | os.O_CLOEXEC)
                descriptors.hold(self._held_box)

    def take_box(self, run: recording.RunOfWorkers) -> tuple[str | None, int | None]:
        """Where it can be read now that the worker is dead, and the descriptor to be closed afterwards."""
        held, self._held_box = self._held_box, None
        if held is None:
            return self.box or run.box_of(self.pid), None
        descriptors.let_go(held)
        return f"/proc/self/fd/{held}", held

    # Handing over

    def hand(self, tasks: list[Task], functions: Functions) -> list[Task]:
        """Sends them as one batch. Returns those for which there is no room now; those that cannot be pickled fail."""
        number, pack, work = self._next, self._pack, NOTHING
        entries: list[Any] = []
        packed: list[tuple[Task, list[tuple[int, int]]]] = []
        definitions: dict[int, bytes] = {}
        refused: list[Task] = []
        for index, task in enumerate(tasks):
            try:
                if task.work is not work:  # most often it is the same all the way
                    function, definition = functions.number(task.work)
                    work = task.work
                call = (task.args, task.kwargs) if definition else (work, task.args, task.kwargs)
                payload, blocks = pack(call)
            except pickling.NoRoom:
                refused = tasks[index:]
                break
            except BaseException as error:  # noqa: BLE001  # __reduce__ may raise anything; it is this task's own fault
                task.failed(pickling.named("the task cannot be pickled", error))
                continue
            if definition and function not in self._functions:
                definitions[function] = definition
            entries.append((number + len(packed), task.label, function, payload, blocks))
            packed.append((task, blocks))
        if entries and not self._send_batch(definitions, entries, packed):
            refused = [task for task, _ in packed] + refused
        return refused

    def _send_batch(
        self,
        definitions: dict[int, bytes],
        entries: list[Any],
        packed: list[tuple[Task, list[tuple[int, int]]]],
    ) -> bool:
        data = pickle.dumps((definitions, entries), 5)
        at, first, count = self._room(len(data)), self._next, len(entries)
        if at is None:
            for _, blocks in packed:
                self._forget_blocks(blocks)
            return False
        self._blocks.view(at, len(data))[:] = data
        if not self.in_hand:
            self.handed_ns = time.monotonic_ns()
        self._sent_batches += 1
        batch = [at, count, self._sent_batches]
        for number, (task, blocks) in enumerate(packed, first):
            self.in_hand[number] = (task, batch, blocks)
            self.load += task.size
        self._claims.reset(first, count)
        self._next += count
        self.served += count
        self._functions.update(definitions)
        self._note_returned()  # first: what it makes next then lies where the last one lay
        self._send(channel.BATCH, at, len(data))
        return True

    def _place(self, raw: memoryview) -> tuple[int, int]:
        at = self._room(raw.nbytes)
        if at is None:
            raise pickling.NoRoom
        self._blocks.view(at, raw.nbytes)[:] = raw
        return at, raw.nbytes

    def _room(self, length: int) -> int | None:
        """A worker that has nothing to do gives nothing back: then the budget does not hold."""
        at = self._blocks.take(length)
        if at is None and not self.in_hand:
            self._blocks.budget, budget = channel.SPAN, self._blocks.budget
            at = self._blocks.take(length)
            self._blocks.budget = budget
        return at

    def _forget_blocks(self, blocks: Iterable[tuple[int, int]]) -> None:
        for at, _ in blocks:
            self._blocks.give_back(at)

    def take_back(self, most: int) -> list[Task]:
        """Tasks that it has not begun, the last ones first: they are somebody else's now."""
        taken: list[Task] = []
        for number in list(reversed(self.in_hand)):
            # A task with a seat stays there, in its turn.
            if most <= 0 or self.in_hand[number][0].seat is not None:
                break
            if not self._claims.revoke(number % channel.MOST_IN_HAND):
                taken += self._take_rest(number)
                break
            task, batch, blocks = self.in_hand.pop(number)
            self._let_go(batch)
            self._forget_blocks(blocks)  # it has not loaded them
            taken.append(task)
            most -= task.size
            self.load -= task.size
            self.served -= 1
        return taken[::-1]

    def _take_rest(self, number: int) -> list[Task]:
        """Of a task that it has begun and that counts for several: half of those that it has not come to."""
        task = self.in_hand[number][0]
        first = task.middle_behind(self.words[channel.ITEM]) if task.size > 1 else None
        if first is None or not self._memory.items.take_back(number, first):
            return []
        rest = task.give_away(first)
        self.load -= rest.size
        return [rest]

    def _let_go(self, batch: list[int]) -> None:
        batch[1] -= 1
        if not batch[1]:
            # It reads the frame sooner or later, and must not find another batch half written in the same place.
            self._unread.append((batch[2], batch[0]))
            self._free_read_batches()

    def _free_read_batches(self) -> None:
        read = self.words[channel.BATCHES]
        for one in [one for one in self._unread if one[0] <= read]:
            self._unread.remove(one)
            self._blocks.give_back(one[1])

    # Hearing

    def hear(self) -> tuple[int, int]:
        """Delivers what was published; how many tasks that were, and the nanoseconds they took together."""
        count = total = 0
        in_hand, most_are = self.in_hand, channel.VALUE
        for tag, nanoseconds, payload in self._records():
            kind, number = tag & 7, tag >> 3
            if kind != most_are and tag & channel.PART == channel.PART and number in in_hand:
                size = self._deliver_part(in_hand[number][0], kind, payload)
                if size:
                    count += size
                    total += nanoseconds
                continue
            held = in_hand.pop(number, None)
            if held is not None:
                task = held[0]
                size = task.size  # none, where all of its results have come as parts
                self.load -= size
                self._let_go(held[1])
                rest = self._deliver(task, kind, payload)
                if rest is not None:
                    self.unfinished.append(rest)
                elif size:
                    count += size
                    total += nanoseconds
            elif kind == channel.FREED:
                self._freed(payload)
            elif number == 0:
                self.refusal = pickling.load_exception(payload)
        if self._unread:
            self._free_read_batches()
        wanted = self.words[channel.WANTS]
        # One with something to do hears of blocks with its next task: a word of their own would wake it once more.
        if wanted != self._wanted or (self._lending.returned and not in_hand):
            self.return_blocks()
        if wanted != self._wanted:
            self._wanted = wanted
            self._send(channel.ROOM)
        return count, total

    def _records(self) -> list[tuple[int, int, Any]]:
        found, is_sound = self._memory.records.read()
        if not is_sound:
            self.kill()  # it would never be heard again
        return found

    def _freed(self, payload: bytes) -> None:
        # A worker that has written over its own memory frees what never was: that is its end, and not ours.
        with contextlib.suppress(Exception):
            self._forget_blocks((at, 0) for at in pickling.loads(payload))

    def _deliver(self, task: Task, kind: int, payload: bytes) -> Task | None:
        try:
            value = pickling.loads(payload) if kind == channel.VALUE else self._unusual(kind, payload)
        except BaseException as error:  # noqa: BLE001  # __setstate__ may raise anything; it is this task's own result
            value = _Raised(pickling.named("the result cannot be read back", error))
        if type(value) is _Raised:
            task.failed(value.error)
            return None
        return task.succeeded(value)

    def _deliver_part(self, task: Task, kind: int, payload: Any) -> int:
        """For how many tasks it counts. Fails for want of memory, or for classes that only the worker has."""
        try:
            value = payload if type(payload) is list else self._unusual(kind, payload)
        except BaseException as error:  # noqa: BLE001  # __setstate__ may raise anything
            task.spoil(pickling.named("the results cannot be read back", error))
            return 0
        size = task.part(value) or 0
        self.load -= size
        return size

    def _unusual(self, kind: int, payload: bytes) -> Any:
        buffers = []
        if kind & channel.LARGE:
            where, blocks = pickling.loads(payload)
            payload = where if isinstance(where, bytes) else self._lending.take_copy(*where)
            buffers = [self._lending.borrow(*block) for block in blocks]
        if kind & ~channel.LARGE == channel.ERROR:
            return _Raised(pickling.load_exception(payload))
        return pickling.loads(payload, buffers=buffers)

    def return_blocks(self) -> None:
        """To the worker: nobody uses them any more."""
        self._note_returned()
        self.flush()

    def _note_returned(self) -> None:
        returned = self._lending.returned
        while returned:
            self._unsent.append(channel.FRAME.pack(channel.RETURNED, returned.popleft(), 0))
        while self._lending.fences:
            self._unsent.append(channel.FRAME.pack(channel.FENCE, self._lending.fences.popleft(), 0))

    def empty_bell(self) -> bool:
        """False: it will never ring again. Its process has ended, or a task has closed all files that it found."""
        try:
            return bool(os.read(self.bell, MOST_RINGS))
        except BlockingIOError:
            return True

    # Pipe

    def stop(self) -> None:
        """After what it has in hand."""
        self.is_retiring = True
        self.handed_ns = time.monotonic_ns()
        self._send(channel.STOP)

    def kill(self) -> None:
        """At once. Workers that start badly die by themselves, often before we have heard of it."""
        with contextlib.suppress(OSError):  # dead, or somebody else's since a task has changed its user
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def _send(self, kind: int, at: int = 0, length: int = 0) -> None:
        self._unsent.append(channel.FRAME.pack(kind, at, length))
        self.flush()

    def flush(self) -> bool:
        """False: its pipe is full, which takes thousands of frames that it has not read. To be called again."""
        while self._unsent:
            frames = b"".join(
                self._unsent[index] for index in range(min(len(self._unsent), worker.MOST_FRAMES))
            )
            try:
                os.write(self._frames, frames)
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self._unsent.clear()  # it is dead, and we hear of it in a moment
                return True
            for _ in range(len(frames) // channel.FRAME.size):
                self._unsent.popleft()
        return True

    # Its end

    def exit_status(self) -> int:
        """As wait(2) has it. To be asked when its pidfd says that it has ended.

        The job may wait for all children, or ignore SIGCHLD: then the status is gone from where we look first, and only
        a newer kernel still knows it. Where nobody does, a worker that was told to stop has done so; else it was killed.
        """
        self.process.join()
        code: int | None = self.process.exitcode
        if code is not None:
            return -code if code < 0 else code << 8
        with contextlib.suppress(OSError, NotImplementedError):
            status = recording.exit_status(self.pidfd)
            if status is not None:
                return status
        return 0 if self.is_retiring else int(signal.SIGKILL)

    def running(self) -> tuple[int, str, int]:
        """Number of the task that it runs (0: none), the step it is at, the position within the task."""
        words = self.words
        number = words[channel.RUNNING]
        return (
            number if number in self.in_hand else 0,
            worker.STEPS.get(words[channel.STEP], "running"),
            words[channel.ITEM],
        )

    def close(self) -> None:
        descriptors.close(self._frames, self.bell, self.pidfd)
        self._blocks.close()
        self._lending.close()
        self._memory.close()
        with contextlib.suppress(ValueError):  # somebody else has its status, so it seems to run
            self.process.close()


def _new_pipe(
    undo: contextlib.ExitStack, ends: contextlib.ExitStack, *, is_ours_the_writing_end: bool
) -> tuple[int, int]:
    """The worker's end, closed when it is started; and ours, which never blocks, closed if it cannot be."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    theirs, ours = (reading, writing) if is_ours_the_writing_end else (writing, reading)
    ends.callback(os.close, theirs)
    undo.callback(descriptors.close, ours)
    descriptors.hold(ours)
    os.set_blocking(ours, False)
    return theirs, ours


def _start(context: BaseContext, seat: int, args: tuple[Any, ...]) -> Any:
    kind = forked.kind_of(context)
    if kind is forked.ForkedWorker:
        rehearsal.hold()
    process = kind(target=worker.main, args=args, name=f"worker {seat}")
    process.start()
    # multiprocessing looks at all of its children whenever somebody starts one or asks for them. From another thread
    # that takes away the status which we are about to read; and at the end of a process it waits for them, before
    # anybody tells ours to stop. So they are no business of its.
    getattr(process_module, "_children", set()).discard(process)
    return process


def _abandon(process: Any) -> None:
    process.kill()
    process.join()


class _Raised:
    """What a task raised, to be told from an exception that it returned."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error
