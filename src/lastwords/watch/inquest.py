"""Judges each ending with what the other processes of the run recorded, and keeps the boxes that are needed."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from lastwords.watch import gpu, last_state, machine
from lastwords.watch.curves import Points
from lastwords.watch.deaths import STOPS, History, Judgement, Verdict, judge
from lastwords.watch.ending import Ended, ParentEnd
from lastwords.watch.kernel_log import KernelLog
from lastwords.watch.last_state import LastState
from lastwords.watch.orders import Orders
from lastwords.watch.proc import is_dying, stat_fields
from lastwords.watch.processes import Process, Processes
from lastwords.watch.run_directory import RunDirectory, forget_box

# Boxes of healthy processes that stay to the end of the run, because they tell of exceptions.
MOST_KEPT_BOXES = 256
# Each is read in full for each death: a run that loses a thousand workers must not read a million boxes.
MOST_RELATED = 64
MOST_SIBLINGS = 64
MOST_ENDS = 1024
TOGETHER = 0.2
"""Seconds within which the order of two ends is not known for sure: a busy machine lets us see them late."""
PATIENCE_WITH_PARENT = 1.0
PATIENCE_WITH_DYING_PARENT = 10.0
"""Seconds: of its threads the one that forked may be gone, and its children told, long before the last has given back
its memory.
"""
GLANCE = 0.002

OnDeath = Callable[[Ended, Sequence[str]], bool]
"""Called with each death and the other boxes of the run; False: it could not be kept, so its box must be."""


class Inquest:
    def __init__(
        self,
        directory: RunDirectory | None,
        living: Processes,
        on_death: OnDeath,
        status_refused: str | None = None,
        memory_of: Callable[[Process], Points] = lambda _: (),
        orders: Orders | None = None,
    ) -> None:
        self.history = History()
        self.deaths: list[Ended] = []
        self.consequences: list[Ended] = []
        self.unexplained: list[Ended] = []
        self.killed_by_us: set[Process] = set()
        """They hung, and were explained before they were killed."""
        self._waiting: deque[Ended] = deque()
        self._explained = 0
        self._doomed: deque[str] = deque()
        """Boxes of those that ended well: needed no more, unless for a death that is still to be explained."""
        self._directory = directory
        self._living = living
        self._on_death = on_death
        self._kept_boxes = 0
        self._ends: dict[int, Ended] = {}
        """Of those that have ended, by pid: a worker may follow its parent."""
        self._kernel_log = KernelLog()
        self._status_refused = status_refused
        self._memory_of = memory_of
        self._orders = orders

    def hear(self, ended: Sequence[Ended]) -> int:
        """Judges these, and says how many deaths there are now for `explain_one`."""
        known = len(self.deaths)
        for one in ended:
            self._remember(one)
        living_states: dict[str, LastState | None] = {}
        for one in ended:
            self._act(one, self._judge(one, living_states))
        return len(self.deaths) - known

    def explain_one(self) -> None:
        """The oldest that waits. May run in a thread of its own, while others are being heard of."""
        death = self._waiting.popleft()
        if death.machine is not None:
            death = replace(death, machine=replace(death.machine, gpus=gpu.look()))
        if _may_have_been_stopped(death):
            self._wait_for_the_parent(death.process)
            death = replace(death, parent_end=self._parent_end(death))
        if not self._on_death(death, self._related(death)):
            self.unexplained.append(death)
        elif death.process.box is not None:
            forget_box(death.process.box)
        self._explained += 1
        self._forget_the_doomed()

    def _forget_the_doomed(self) -> None:
        """A parent that ends well right after its worker may be the one who killed it, and its box says so."""
        is_needed = self._explained < len(self.deaths)
        # Both threads come here: between the question and the answer the other may have taken the last.
        with contextlib.suppress(IndexError):
            while len(self._doomed) > (MOST_KEPT_BOXES if is_needed else 0):
                forget_box(self._doomed.popleft())

    def _related(self, death: Ended) -> list[str]:
        """Boxes that may tell who sent it a signal, or where its exception came from: its ancestors', then the
        newest.
        """
        boxes = self._directory.boxes() if self._directory is not None else []
        waiting = {one.process.box for one in tuple(self._waiting)}
        others = [box for box in boxes if box != death.process.box and box not in waiting]
        ancestors = set(map(str, death.process.ancestors))
        others.sort(key=lambda box: _pid_and_birth(box)[1], reverse=True)
        others.sort(key=lambda box: _pid_and_birth(box)[0] not in ancestors)
        return others[:MOST_RELATED]

    def _remember(self, ended: Ended) -> None:
        while len(self._ends) >= MOST_ENDS:
            del self._ends[next(iter(self._ends))]
        self._ends[ended.process.pid] = ended
        if ended.state is None:
            return
        if ended.state.sent:
            self.history.senders.append(ended.state)
        self.history.raised.extend(one for one in ended.state.raised if not one.fatal)

    def _judge(self, ended: Ended, states: dict[str, LastState | None]) -> Judgement:
        """Asks the living for signals that they sent: the parent first, who mostly did it, then everybody."""
        judgement = judge(ended, self.history)
        parents = [process for process in self._living if process.pid in ended.process.ancestors]
        for asked in (parents, self._living):
            if judgement.verdict is not Verdict.DEATH or not _may_have_been_stopped(ended):
                break
            senders = [*self.history.senders, *_senders(asked, states)]
            judgement = judge(ended, self.history.with_senders(senders))
        return judgement

    def _act(self, ended: Ended, judgement: Judgement) -> None:
        if ended.process in self.killed_by_us:
            # What its parent says of it now is the echo of the hang.
            self.history.fallen.append(ended)
            if ended.process.box is not None:
                forget_box(ended.process.box)
        elif judgement.verdict is Verdict.DEATH:
            was_parent_dying = self._is_parent_dying(ended.process)
            orders = self._orders.so_far() if self._orders else ()
            ended = self._with_machine(replace(ended, orders=orders, was_parent_dying=was_parent_dying))
            self.history.fallen.append(ended)
            self.deaths.append(ended)
            self._waiting.append(ended)
        elif judgement.verdict is Verdict.CONSEQUENCE:
            self.history.fallen.append(ended)
            self.consequences.append(ended)
        elif ended.process.box is not None:
            self._forget_or_keep(ended.process.box, ended.state)

    def _with_machine(self, ended: Ended) -> Ended:
        """Now, and not when it is explained: by then others may have taken or given back what it lacked."""
        if ended.beginning is None:
            return ended
        found = machine.look(ended.process.pid, ended.beginning, self._kernel_log, self._status_refused)
        return replace(
            ended,
            machine=found,
            siblings=tuple(self._siblings(ended.process)),
            sharers=self._sharers(ended) if ended.shares and ended.shares[-1].loose_files else 1.0,
        )

    def _parent_end(self, ended: Ended) -> ParentEnd | None:
        """Asked only when it is explained: the kernel tells the children of an end before it tells us."""
        parent = self._ends.get(ended.process.parent or 0)
        if parent is None or parent.noticed_ns < (ended.state.born_ns if ended.state is not None else 0):
            return None
        if ended.status.source == "pidfd":
            return None  # told only once somebody else has buried it: its parent was still there to do so
        before = (ended.noticed_ns - parent.noticed_ns) / 1e9
        # Who was left to us to bury had no parent any more, whatever we noticed first. Of the others, one whose parent
        # ended by itself a little later may be the reason for that; a parent that was killed had another. How long it
        # takes to be dead says nothing then: torch's worker is told by the kernel as soon as one thread of it is.
        is_orphan = ended.status.source == "parent"
        is_together = before >= -TOGETHER or ended.was_parent_dying
        if before < 0 and not is_orphan and not (is_together and parent.status.signal):
            return None
        return ParentEnd(parent.process.pid, parent.status, max(0.0, before))

    def _is_parent_dying(self, process: Process) -> bool:
        parent = process.parent
        return parent is not None and self._living.get(parent) is not None and is_dying(parent)

    def _wait_for_the_parent(self, process: Process) -> None:
        """It is ending, and nobody has heard of it yet. In the thread that explains, where nobody waits for us."""
        begun = time.monotonic()
        while process.parent is not None and process.parent not in self._ends:
            if self._is_parent_dying(process):
                patience = PATIENCE_WITH_DYING_PARENT
            # Gone already: it has been reaped, and is about to be remembered.
            elif is_dying(process.parent) or not stat_fields(process.parent):
                patience = PATIENCE_WITH_PARENT
            else:
                return
            if time.monotonic() >= begun + patience:
                return
            time.sleep(GLANCE)

    def _siblings(self, process: Process) -> Iterator[Points]:
        return map(self._memory_of, self._living_siblings(process))

    def _living_siblings(self, process: Process) -> list[Process]:
        if process.parent is None:
            return []
        return [one for one in self._living if one.parent == process.parent][:MOST_SIBLINGS]

    def _sharers(self, ended: Ended) -> float:
        """Whoever worked on items beside it, each for the part of its life in which he was there. The resource tracker
        and its like are siblings, too, and make nothing.
        """
        if ended.state is None:
            return 1.0
        parent, begin, end = ended.process.parent, ended.state.born_ns, ended.noticed_ns
        boxes = [one.box for one in self._living_siblings(ended.process) if one.box is not None]
        others = [(state, end) for state in map(last_state.read, boxes)]
        others += [
            (one.state, one.noticed_ns)
            for one in self._ends.values()
            if one.process.parent == parent and one.process is not ended.process
        ]
        beside = (
            max(0, min(end, until) - max(begin, state.born_ns))
            for state, until in others
            if state is not None and state.items_begun
        )
        return 1.0 + sum(beside) / max(1, end - begin)

    def _forget_or_keep(self, box: str, state: LastState | None) -> None:
        """A pool raises a worker's exception again in its parent: only the worker's box knows the item."""
        if state is not None and state.raised and self._kept_boxes < MOST_KEPT_BOXES:
            self._kept_boxes += 1
        else:
            self._doomed.append(box)
            self._forget_the_doomed()


def _pid_and_birth(box: str) -> tuple[str, str]:
    """A box is called `<pid>-<nanoseconds since 1970>.box`."""
    pid, _, birth = os.path.basename(box).removesuffix(".box").partition("-")
    return pid, birth


def _may_have_been_stopped(ended: Ended) -> bool:
    has_crashed = ended.state is not None and ended.state.crash_signal
    return not has_crashed and (not ended.status.signal or ended.status.signal in STOPS)


def _senders(processes: Iterable[Process], states: dict[str, LastState | None]) -> list[LastState]:
    found = []
    for process in processes:
        if process.box is None:
            continue
        if process.box not in states:
            states[process.box] = last_state.read(process.box)
        state = states[process.box]
        if state is not None and state.sent:
            found.append(state)
    return found
