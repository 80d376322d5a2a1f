"""What runs in a worker: takes batches, claims each task, runs it, publishes its result before the next begins."""

from __future__ import annotations

import _signal  # and not signal: making its enums would copy pages that a fork shares with its parent
import os
import pickle
import threading
import time
import weakref
from collections import deque
from itertools import starmap

from lastwords import recording
from lastwords.survive import channel, descriptors, forked, pickling
from lastwords.survive.blocks import Blocks, Lending, window
from lastwords.survive.weight import PAGE, own_bytes, page_faults, private_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

    Setup = tuple[Callable[..., object], tuple[Any, ...]]
    """A function and its arguments, called first in a new worker."""

# Values of the word STEP: where in its task a worker is.
LOADING, CALLING, SENDING, SETTING_UP, ENDING = range(1, 6)
STEPS = {
    0: "between tasks",
    LOADING: "loading its task",
    CALLING: "running",
    SENDING: "sending its result",
    SETTING_UP: "starting",
    ENDING: "ending",
}
WEIGHING_NS = 10_000_000
"""Between two looks of a worker at its own memory."""
WEIGHING_SHARE = 100
"""Between two close looks: so many times what one takes."""
SOONEST_SHARE = 10
"""The same, where enough pages were touched to have come over the limit."""
BELL_NS = 500_000
"""Results wait at most about this long before the supervisor hears of them; it looks by itself as well."""
MAP_BELL_NS = 8_000_000
"""The same for those of a `map`, which come in order anyway. A turn of the supervisor costs as much as one task of 100 µs."""
PART_NS = 1_000_000
"""Results of a chunk are published at least this often: what was finished before that never runs again."""
IDLE_MS = 100
"""After that, memory that nobody uses is worth more to others than warm pages are to us. With 10, a loader's worker that had to
wait for its neighbour now and then touched its 20 MB anew each time, which takes as long.
"""
MOST_FRAMES = 170
"""That a pipe takes in one piece: PIPE_BUF is 4096."""

current: Worker | None = None
"""In a worker: itself."""


class Handover:
    """What the supervisor gives a new worker. Forked, it is simply there; else descriptors travel in the pickle."""

    def __init__(self, memory: channel.SharedMemory, descriptor: int, frames: int, bell: int) -> None:
        self.memory = memory
        self.descriptor = descriptor
        self.frames = frames
        self.bell = bell

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.reduction import DupFd

        ends = [DupFd(one) for one in (self.descriptor, self.frames, self.bell)]
        return _received, (self.memory.span, *ends)


def _received(span: int, descriptor: Any, frames: Any, bell: Any) -> Handover:
    own = descriptor.detach()
    return Handover(channel.SharedMemory(own, span), own, frames.detach(), bell.detach())


class Settings:
    """The same for all workers of a supervisor. `parent`: 0 where workers are not its own children."""

    def __init__(
        self,
        role: str,
        directory: str | None,
        budget: int,
        parent: int,
        *,
        is_prompt: bool = False,
        weighs_above: int | None = None,
        keeps_pages: bool = False,
    ) -> None:
        """`weighs_above`: workers look at their own memory, and closely where it is more than so many bytes.

        `keeps_pages`: of results; see `Blocks`.
        """
        self.role = role
        self.directory = directory
        self.budget = budget
        self.parent = parent
        self.bell_ns = 0 if is_prompt else BELL_NS
        self.weighs_above = weighs_above
        self.keeps_pages = keeps_pages


def main(index: int, handover: Handover, settings: Settings, setup: Setup | None) -> None:
    """The target of the worker's Process."""
    global current  # noqa: PLW0603  # one worker is one process
    descriptors.close_inherited()
    if not recording.end_with_parent(settings.parent or os.getppid()):
        return
    threading.current_thread().name = "MainThread"  # forked from the supervisor's thread
    recording.record_worker(settings.directory, settings.role, index, makes_processes_later=forked.is_here)
    current = Worker(index, handover, settings)
    current.hear_interrupts()
    os.close(handover.descriptor)
    try:
        if current.set_up(setup):
            current.serve()
    finally:
        current.note_step(ENDING)  # threads that never end, and exit handlers that hang, come now
        recording.end_item()
    recording.say_exit(0)


class Worker:
    def __init__(self, index: int, handover: Handover, settings: Settings) -> None:
        budget = settings.budget
        self.index = index
        self._bell_ns = self._patience_ns = settings.bell_ns
        self._map_bell_ns = self._bell_ns and MAP_BELL_NS
        memory = handover.memory
        self._memory = memory
        self._words = memory.words
        self._frames = handover.frames
        self._bell = handover.bell
        self.items = memory.items
        self._results = Blocks(
            memory.memory, memory.results_at, memory.span, budget, keeps_pages=settings.keeps_pages
        )
        self._lending = Lending(memory.memory, budget // 2)
        self._pack = pickling.Packer(self._place, self._forget)
        self._functions: dict[int, Any] = {}
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._rung_ns = 0
        self._is_weighed = settings.weighs_above is not None
        self._weighs_above = settings.weighs_above or 0
        self._next_weighing = self._next_close_look = self._next_look_anyway = 0
        self._shared = self._private = self._faults = 0
        self._is_unheard = False
        self._poll: Any = None
        self._base: int | None = None
        """Where the shared memory lies."""
        self._allocated: dict[int, int] = {}
        self._made: dict[int, weakref.ref[Any]] = {}
        self._let_go: deque[int] = deque()
        self._stretches: Any = None

    def set_up(self, setup: Setup | None) -> bool:
        if setup is not None:
            function, arguments = setup
            self.note_step(SETTING_UP)
            try:
                recording.begin_call(None, recording.RUN, function, arguments, None)
                function(*arguments)
            except BaseException as error:  # noqa: BLE001  # as concurrent.futures: SystemExit counts, too
                recording.record_exception(error)
                self._publish(channel.ERROR, 0, pickling.dump_exception(error))
                self._words[channel.READY] = channel.REFUSED
                self._ring()
                return False
            finally:
                recording.end_item()
            self.note_step(0)
        self._words[channel.BORN] = own_bytes("self")
        self._words[channel.READY] = channel.SERVING
        self._ring()
        return True

    def hear_interrupts(self) -> None:
        """Ctrl-C goes to the whole group. It is for the job, which tells us when to stop, and for code of the user's."""
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._words[channel.STEP] in (CALLING, SETTING_UP):
            _signal.default_int_handler(number, frame)

    def note_step(self, step: int) -> None:
        """Outside of any task. Its time-out counts from now."""
        self._words[channel.BEGAN] = time.monotonic_ns()
        self._words[channel.STEP] = step

    def serve(self) -> None:
        """Until the supervisor says stop, or is gone."""
        while True:
            kind, at, length = self._next_frame()
            if kind == channel.STOP:
                return
            if kind == channel.BATCH:
                self._run_batch(at, length)
            elif kind == channel.RETURNED:
                self._give_back(at)
            elif kind == channel.FENCE:
                self._results.fence(at)

    def _run_batch(self, at: int, length: int) -> None:
        data = self._memory.memory[at : at + length]
        self._words[channel.BATCHES] += 1  # its place may be used again, also if all of it was taken back
        definitions, tasks = pickling.loads(data)
        self._functions.update(definitions)
        claim = self._memory.claims.claim
        for task in tasks:
            if claim(task[0] % channel.MOST_IN_HAND):
                self._run(*task)

    def _run(
        self, number: int, label: int, function: int, payload: Any, blocks: list[tuple[int, int]]
    ) -> None:
        words = self._words
        began = self.items.begin_task(number, label)
        try:
            work, is_marked, args, kwargs = self._load(function, payload, blocks)
            if not is_marked:
                recording.begin_call(label, recording.RUN, work, args, kwargs)
            words[channel.STEP] = CALLING
            value = work(*args, **kwargs)
            words[channel.STEP] = SENDING
            del args, kwargs
        except BaseException as error:  # noqa: BLE001  # it belongs to the task's owner, whatever it is
            words[channel.STEP] = SENDING
            recording.record_exception(error)
            self._send(channel.ERROR, number, began, error)
        else:
            self._send(channel.VALUE, number, began, value)
            del value
        self.items.end_task()
        if self._is_weighed:
            self._weigh()
        if self._lending.returned:
            self._say_freed()

    def _weigh(self) -> None:
        """Between two tasks, where nothing is borrowed. Whoever looks from outside cannot hit that moment."""
        now = time.monotonic_ns()
        if now < self._next_weighing:
            return
        self._next_weighing = now + WEIGHING_NS
        own = own_bytes("self")
        self._words[channel.RESTING] = own
        if own > self._weighs_above and now >= self._next_close_look:
            self._look_closely(now, own)
        self._words[channel.RESTING_PRIVATE] = own - self._shared

    def _look_closely(self, now: int, own: int) -> None:
        """What it has less what a fork shares with its parent. That takes the longer the more there is, and is asked again
        sooner where pages were touched since: one of the parent's that is written to becomes its own, and it has no more
        pages than before.
        """
        faults = page_faults()
        is_due = now >= self._next_look_anyway
        if not is_due and self._private + (faults - self._faults) * PAGE <= self._weighs_above:
            return
        self._private, self._faults = private_bytes("self"), faults
        self._shared = own - self._private
        after = time.monotonic_ns()
        self._next_close_look = after + SOONEST_SHARE * (after - now)
        self._next_look_anyway = after + WEIGHING_SHARE * (after - now)

    def _load(self, function: int, payload: Any, blocks: list[tuple[int, int]]) -> tuple[Any, ...]:
        if isinstance(payload, tuple):
            payload = self._lending.take_copy(*payload)
        buffers = [self._lending.borrow(*block) for block in blocks] if blocks else ()
        if function == channel.NO_FUNCTION:
            work, args, kwargs = pickling.loads(payload, buffers=buffers)
            return work, bool(getattr(work, "marks_its_items", False)), args, kwargs
        return (*self._function(function), *pickling.loads(payload, buffers=buffers))

    def _function(self, number: int) -> Any:
        """Loaded by the first task that needs it: if that kills us, it is that task's death."""
        found = self._functions[number]
        if isinstance(found, bytes):
            work = pickling.loads(found)
            found = self._functions[number] = (work, bool(getattr(work, "marks_its_items", False)))
        return found

    def _send(self, kind: int, number: int, began: int, value: Any) -> None:
        recording.phase(recording.SEND)
        try:
            if kind == channel.VALUE:
                payload, blocks = self._pack(value)
            else:
                payload, blocks = pickling.dump_exception(value), pickling.NO_BLOCKS
        except BaseException as error:  # noqa: BLE001  # __reduce__ may raise anything
            kind, blocks = channel.ERROR, pickling.NO_BLOCKS
            payload = pickling.dump_exception(pickling.named("the result cannot be pickled", error))
        if blocks or pickling.is_large(payload):
            kind |= channel.LARGE
            payload = self._with_blocks(payload, blocks)
        now = time.monotonic_ns()
        self._publish(kind, number, payload, now - began)
        if self._allocated:
            self._forget_unsent(blocks)
        if now - self._rung_ns > self._patience_ns:
            self._ring()
        self._patience_ns = self._bell_ns

    def run_items(
        self, work: Callable[..., Any], items: Sequence[Any], label: int, *, rows: bool
    ) -> list[Any]:
        """Publishes the results on the way, and has none left at the end.

        Black box and supervisor are told of every item, and since when it runs: each has the time-out of a task.
        """
        self._patience_ns = self._map_bell_ns
        found: list[Any] = []
        items = list(items)  # a range, perhaps
        at = 0
        try:
            while at < len(items):
                named = self.items.each(items, at, label, PART_NS)
                found.extend(starmap(work, named) if rows else map(work, named))
                at = named.position
                self._publish_part(found)
        finally:
            self._publish_part(found)
        return found

    def run_stretch(self, work: Callable[..., Any], items: Sequence[Any], label: int, *, rows: bool) -> None:
        """Each item is a task: its result is published before the next begins, and what it raises is its own."""
        self._patience_ns = self._map_bell_ns
        try:
            place = self._words[channel.RUNNING], label, self._rung_ns
            stretches = self._stretches = self._stretches or self._new_stretches()
            stretches.run(work, list(items), rows, place)
        except BaseException as error:  # noqa: BLE001  # memory, or an interrupt, on the way to the supervisor
            self._publish_raised(error, 0)  # of the first whose result is not there; those behind it go on

    def _new_stretches(self) -> Any:
        return recording.Stretches(
            self.items,
            self._memory.records,
            self._publish_one,
            self._publish_raised,
            self._ring_between_items,
            self._map_bell_ns,
        )

    def _ring_between_items(self) -> None:
        self._words[channel.STEP] = SENDING  # interrupts are for the items
        self._ring()
        self._words[channel.STEP] = CALLING

    def _publish_one(self, value: Any, nanoseconds: int) -> None:
        self._words[channel.STEP] = SENDING
        recording.phase(recording.SEND)
        try:
            payload, blocks = self._pack([value])
        except BaseException as error:  # noqa: BLE001  # __reduce__ may raise anything
            self._publish_failed(pickling.named("the result cannot be pickled", error), nanoseconds)
            return
        kind = channel.PART
        if blocks or pickling.is_large(payload):
            kind |= channel.LARGE
            payload = self._with_blocks(payload, blocks)
        self._publish(kind, self._words[channel.RUNNING], payload, nanoseconds)
        if self._allocated:
            self._forget_unsent(blocks)
        self._words[channel.STEP] = CALLING

    def _publish_raised(self, error: BaseException, nanoseconds: int) -> None:
        self._words[channel.STEP] = SENDING
        recording.record_exception(error)
        self._publish_failed(error, nanoseconds)

    def _publish_failed(self, error: BaseException, nanoseconds: int) -> None:
        payload = pickle.dumps(pickling.Failed(pickling.dump_exception(error)), 5)
        kind = channel.PART
        if pickling.is_large(payload):
            kind |= channel.LARGE
            payload = self._with_blocks(payload, pickling.NO_BLOCKS)
        self._publish(kind, self._words[channel.RUNNING], payload, nanoseconds)
        if self._allocated:
            self._forget_unsent(pickling.NO_BLOCKS)
        self._words[channel.STEP] = CALLING

    def _publish_part(self, values: list[Any]) -> None:
        """What is published survives us. `values` is empty then."""
        if not values:
            return
        self._words[channel.STEP] = SENDING
        try:
            payload, blocks = self._pack(values)
        except BaseException as error:  # __reduce__ may raise anything
            if len(values) == 1:
                raise pickling.named("the result cannot be pickled", error) from error
            each = values.copy()
            values.clear()  # what comes behind the bad one must not take its place
            for value in each:
                self._publish_part([value])
            return
        kind = channel.PART
        if blocks or pickling.is_large(payload):
            kind |= channel.LARGE
            payload = self._with_blocks(payload, blocks)
        self._publish(kind, self._words[channel.RUNNING], payload)
        values.clear()
        self._words[channel.STEP] = CALLING

    def _with_blocks(self, payload: bytes, blocks: list[tuple[int, int]]) -> bytes:
        """The payload, or where it lies, and where the rest does."""
        where = self._place_always(payload) if pickling.is_large(payload) else payload
        return pickle.dumps((where, blocks), 5)

    def _forget_unsent(self, sent: list[tuple[int, int]]) -> None:
        """Allocated by the task, and not part of its result."""
        for at in self._allocated.keys() - {block[0] for block in sent}:
            self._give_back(at)
        self._allocated.clear()

    def close(self) -> None:
        """For one that is not the whole of its process: see rehearsal.py."""
        self._results.close()
        del self._pack  # which knows us: nothing is left for the garbage collector

    # What a task may use

    def allocate(self, length: int) -> object:
        """A buffer in shared memory: a result built in it is handed over without a copy."""
        at, _ = self._place_room(length)
        buffer = window(self._memory.memory, at, length)
        self._allocated[at] = length
        self._made[at] = weakref.ref(buffer)
        return buffer

    def at_item(self, position: int, since: int = 0) -> None:
        """For tasks of several items: which one is worked on, for whoever explains a death.

        `since` (`time.monotonic_ns()`): it has the time-out of a task for itself, beginning there.
        """
        self._words[channel.ITEM] = position
        if since:
            self._words[channel.BEGAN] = since

    def _give_back(self, at: int) -> None:
        """Whoever built something there may have kept it, in a cache of the dataset's say: then it stays theirs."""
        made = self._made.pop(at, None)
        buffer = made() if made is not None else None
        if buffer is None:
            self._results.give_back(at)
        else:
            weakref.finalize(buffer, self._let_go.append, at).atexit = False

    def _place(self, raw: memoryview) -> tuple[int, int]:
        if self._allocated:
            at = self._lies_at(raw)
            if at in self._allocated and self._allocated[at] >= raw.nbytes:
                return at, raw.nbytes
        return self._place_always(raw)

    def _forget(self, at: int) -> None:
        if at not in self._allocated:
            self._results.give_back(at)

    def _lies_at(self, raw: memoryview) -> int:
        """As an offset into the shared memory; nonsense for anything outside, and nobody's block then."""
        if raw.readonly:
            return -1
        from ctypes import addressof, c_char

        if self._base is None:
            self._base = addressof(c_char.from_buffer(self._memory.memory))
        return addressof(c_char.from_buffer(raw)) - self._base

    def _place_always(self, data: bytes | memoryview) -> tuple[int, int]:
        at, length = self._place_room(len(data))
        self._results.view(at, length)[:] = data
        return at, length

    def _place_room(self, length: int) -> tuple[int, int]:
        """The budget is spent: the supervisor may have blocks to return. It has not: go over the budget."""
        while self._let_go:
            self._results.give_back(self._let_go.popleft())
        at = self._results.take(length, is_warm=True)
        if at is None:
            self._hear_returns()
            at = self._results.take(length)
        if at is None:
            self._wait_for_room()
            at = self._results.take(length)
        if at is None:
            self._results.budget, budget = channel.SPAN, self._results.budget
            at = self._results.take(length)
            self._results.budget = budget
        if at is None:
            raise MemoryError(f"no room for {length} bytes in the memory shared with the supervisor")
        return at, length

    def _hear_returns(self) -> None:
        """Those that wait in the pipe behind the task at hand: a third batch of a loader's would take fresh pages."""
        if self._has_frames(0):
            for frame in self._read_frames():
                if frame[0] == channel.RETURNED:
                    self._give_back(frame[1])
                else:
                    self._waiting.append(frame)

    def _wait_for_room(self) -> None:
        """Until the supervisor has read all that was published, and returned what it had to return."""
        self._words[channel.WANTS] += 1
        self._ring()
        is_waiting = True
        while is_waiting:
            for frame in self._read_frames():
                if frame[0] == channel.ROOM:
                    is_waiting = False
                elif frame[0] == channel.RETURNED:
                    self._give_back(frame[1])
                else:
                    self._waiting.append(frame)

    # Pipes

    def _publish(self, kind: int, number: int, payload: bytes, nanoseconds: int = 0) -> None:
        while not self._memory.records.write(number << 3 | kind, nanoseconds, payload):
            self._wait_for_room()
        self._is_unheard = True

    def _say_freed(self) -> None:
        freed = [self._lending.returned.popleft() for _ in range(len(self._lending.returned))]
        self._publish(channel.FREED, 0, pickle.dumps(freed, 5))

    def _ring(self) -> None:
        self._is_unheard = False
        self._rung_ns = time.monotonic_ns()
        try:
            os.write(self._bell, b"!")
        except BrokenPipeError:
            os._exit(0)  # nobody is left to work for

    def _next_frame(self) -> tuple[int, int, int]:
        while not self._waiting:
            if self._is_unheard:
                self._ring()
            if self._results.is_worth_releasing and self._is_idle():
                self._results.release()
            self._waiting.extend(self._read_frames())
        return self._waiting.popleft()

    def _is_idle(self) -> bool:
        try:
            return not self._has_frames(IDLE_MS)
        except KeyboardInterrupt:  # by somebody's own handler
            return False

    def _has_frames(self, milliseconds: int) -> bool:
        if self._poll is None:
            from select import POLLIN, poll

            self._poll = poll()
            self._poll.register(self._frames, POLLIN)
        return bool(self._poll.poll(milliseconds))

    def _read_frames(self) -> list[tuple[int, int, int]]:
        while True:
            try:
                data = os.read(self._frames, MOST_FRAMES * channel.FRAME.size)
                break
            except KeyboardInterrupt:  # by somebody's own handler
                continue
        if not data:
            os._exit(0)  # nobody is left to work for
        return list(channel.FRAME.iter_unpack(data))
