"""Judges each ending with what the other processes of the run recorded, and keeps the boxes that are needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lastwords.watch import last_state, machine
from lastwords.watch.deaths import STOPS, History, Judgement, Verdict, judge
from lastwords.watch.ending import Ended
from lastwords.watch.kernel_log import KernelLog
from lastwords.watch.last_state import LastState
from lastwords.watch.processes import Process, Processes
from lastwords.watch.run_directory import RunDirectory, forget_box

# Boxes of healthy processes that stay to the end of the run, because they tell of exceptions.
MOST_KEPT_BOXES = 256
# Each is read in full for each death: a run that loses a thousand workers must not read a million boxes.
MOST_RELATED = 64

OnDeath = Callable[[Ended, Sequence[str]], bool]
"""Called with each death and the other boxes of the run; False: it could not be kept, so its box must be."""


class Inquest:
    def __init__(self, directory: RunDirectory | None, living: Processes, on_death: OnDeath) -> None:
        self.history = History()
        self.deaths: list[Ended] = []
        self.consequences: list[Ended] = []
        self.unexplained: list[Ended] = []
        self.killed_by_us: set[Process] = set()
        """They hung, and were explained before they were killed."""
        self._waiting: list[Ended] = []
        self._directory = directory
        self._living = living
        self._on_death = on_death
        self._kept_boxes = 0
        self._kernel_log = KernelLog()

    def hear(self, ended: Sequence[Ended]) -> None:
        for one in ended:
            self._remember(one)
        living_states: dict[str, LastState | None] = {}
        for one in ended:
            self._act(one, self._judge(one, living_states))

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def explain_one(self) -> None:
        """One at a time, so that signals are passed on in between."""
        if not self._waiting:
            return
        death = self._waiting.pop(0)
        if not self._on_death(death, self._related(death)):
            self.unexplained.append(death)
        elif death.process.box is not None:
            forget_box(death.process.box)

    def _related(self, death: Ended) -> list[str]:
        """Boxes that may tell who sent it a signal, or where its exception came from: its ancestors', then the
        newest.
        """
        boxes = self._directory.boxes() if self._directory is not None else []
        waiting = {one.process.box for one in self._waiting}
        others = [box for box in boxes if box != death.process.box and box not in waiting]
        ancestors = set(map(str, death.process.ancestors))
        others.sort(key=lambda box: _pid_and_birth(box)[1], reverse=True)
        others.sort(key=lambda box: _pid_and_birth(box)[0] not in ancestors)
        return others[:MOST_RELATED]

    def _remember(self, ended: Ended) -> None:
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
            ended = self._with_machine(ended)
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
        return replace(ended, machine=machine.look(ended.process.pid, ended.beginning, self._kernel_log))

    def _forget_or_keep(self, box: str, state: LastState | None) -> None:
        """A pool raises a worker's exception again in its parent: only the worker's box knows the item."""
        if state is not None and state.raised and self._kept_boxes < MOST_KEPT_BOXES:
            self._kept_boxes += 1
        else:
            forget_box(box)


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
