"""One worker's death: what the supervisor saw, and a thread that explains it while the others work on."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lastwords.endings import OTHERWISE, PASSED, SAME
from lastwords.survive.policy import NOT_ITS_FAULT, WorkerDied

if TYPE_CHECKING:
    from lastwords import Diagnosis
    from lastwords.recording import MemoryKills, RunOfWorkers
    from lastwords.survive.tasks import Task

CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP}
)
MOST_WAITING = 4
"""Deaths in the queue, beyond which one that will be tried again is not explained: its worker is needed more."""


@dataclass(eq=False, slots=True)
class Sentence:
    """The supervisor ends a worker that has used more than the policy allows."""

    number: int
    """Of the task that went too far; 0: it ran none."""
    cause: str
    words: str
    """What it did, to follow `worker 3`."""
    since: int = 0
    """Of one that took too long: when what it is at began, as `time.monotonic_ns()` says it."""
    diagnosis: Diagnosis | None = None
    is_carried_out: bool = False


@dataclass(eq=False, slots=True)
class Death:
    seat: int
    pid: int
    status: int
    """As wait(2) has it."""
    step: str
    """`loading its task`, `running`, `sending its result`, `between tasks`, `starting`."""
    task: Task | None
    """The one that ran; None: none did, and nobody is to blame."""
    position: int = 0
    """Within the task: what the worker said with `at_item`."""
    box: str | None = None
    memory_kills: MemoryKills = ()
    time: float = field(default_factory=time.time)
    diagnosis: Diagnosis | None = None
    is_decided: bool = False
    """What becomes of its task did not wait for the diagnosis."""
    opens_breaker: bool = False
    held_box: int | None = None
    """The descriptor by which `box` is read."""
    sentence: Sentence | None = None
    """The supervisor's own doing, and why."""
    others: int | None = None
    """Workers that were there beside it."""
    before: Death | None = None
    """The task had killed before, in company: this is the death of a try alone."""
    signature: str | None = None
    """As it was before anything was known of tries alone."""
    alone: str | None = None
    """What became of the task in its last try alone; None: it is not tried, or the answer is not there yet."""
    tries: int = 0
    others_then: int | None = None
    """Of these, those that had something to do when that try began."""

    @property
    def words(self) -> str:
        if self.sentence is not None:
            return self.sentence.words
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            try:
                return f"died of {signal.Signals(number).name}"
            except ValueError:
                return f"died of signal {number}"
        return f"ended with exit code {os.WEXITSTATUS(self.status)}"

    @property
    def cause(self) -> str | None:
        if self.sentence is not None:
            return self.sentence.cause
        best = self.diagnosis.best if self.diagnosis is not None else None
        return best.id if best is not None else None

    @property
    def is_innocent(self) -> bool:
        """Somebody else killed the worker: whatever ran in it did nothing wrong, as far as is known."""
        if self.sentence is not None:
            return False
        best = self.diagnosis.best if self.diagnosis is not None else None
        return best is not None and best.id in NOT_ITS_FAULT and best.facts.get("sender_pid") != self.pid

    @property
    def item(self) -> str | None:
        return self.task.words(self) if self.task is not None else None

    @property
    def advice(self) -> str | None:
        """Where to look, now that the task has passed alone. A worker that somebody killed says nothing of that kind."""
        if self.alone != PASSED or self.sentence is not None or not os.WIFSIGNALED(self.status):
            return None
        if os.WTERMSIG(self.status) not in CRASHES:
            return None
        race = "a race with other workers, or for " if self.others != 0 else ""
        return f"{self.item} passed when it ran alone: look for {race}what ran before it in its worker"

    @property
    def headline(self) -> str:
        where = f"while {self.step}" if self.step != "between tasks" else "between tasks"
        if self.task is not None:
            where += f": {self.item}"
        attempts = self.task.attempts if self.task is not None else 0
        tries = f", {attempts} times of {attempts}" if attempts > 1 else ""
        return f"worker {self.seat} (pid {self.pid}) {self.words} {where}{tries}"

    def as_dict(self) -> dict[str, object]:
        """For logs that machines read."""
        return {
            "worker": self.seat,
            "pid": self.pid,
            "status": self.status,
            "step": self.step,
            "item": self.item,
            "attempts": self.task.attempts if self.task is not None else 0,
            "cause": self.cause,
            "death": self.diagnosis.evidence.id if self.diagnosis is not None else None,
            "alone": self.alone,
        }

    def error(self) -> WorkerDied:
        """What the owner of its task is told: what happened, why, and the next command."""
        attempts = self.task.attempts if self.task is not None else 0
        text = "\n".join([self.headline, *self._explained()])
        return WorkerDied(text, diagnosis=self.diagnosis, item=self.item, attempts=attempts)

    def let_box_go(self) -> None:
        if self.held_box is not None:
            os.close(self.held_box)
            self.held_box = None

    def _explained(self) -> list[str]:
        best = self.diagnosis.best if self.diagnosis is not None else None
        if best is None or self.diagnosis is None:
            return []
        lines = [f"{best.id} {best.confidence:.0%}: {best.sentence}"]
        if self.before is not None and self.alone is not None:
            lines.append(f"when it ran alone in a fresh worker, it {self.alone}")
        for number, step in enumerate(best.steps[:2], 1):
            lines.append(f"  {number}. {step.text}")
            if step.command is not None:
                lines.append(f"       {step.command}")
        if self.diagnosis.evidence.id:
            lines.append(f"more: lastwords show {self.diagnosis.evidence.id}")
        return lines


class Coroner:
    """Explains deaths, one after the other, off the supervisor's thread."""

    def __init__(
        self,
        run: RunOfWorkers,
        fork_gate: AbstractContextManager[object],
        on_explained: Callable[[Death], None],
        on_asked: Callable[[Sentence], None],
    ) -> None:
        self._run = run
        self._fork_gate = fork_gate
        self._on_explained = on_explained
        self._on_asked = on_asked
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_behind(self) -> bool:
        return self._waiting.qsize() >= MOST_WAITING

    def explain(self, death: Death) -> None:
        self._later(lambda: self._explain(death))

    def ask(self, pid: int, box: str | None, sentence: Sentence, after: float) -> None:
        """Where it hangs. It lives on until that is answered, or is not in a second."""
        self._later(lambda: self._ask(pid, box, sentence, after))

    def learn(self, death: Death) -> None:
        """Its task has passed alone, which is a fact about it. If nobody has explained it yet, that comes with it."""
        self._later(lambda: self._learn(death))

    def _later(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="lastwords coroner", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or none at the interpreter's end: we wait for it here
                work()
                return
            self._thread = thread
        self._waiting.put(work)

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()

    def _work(self) -> None:
        # A worker forked in the middle of these imports would inherit half a module, and its lock. A module that does
        # not load costs the diagnosis, and not the pool: somebody waits for each death to be heard.
        with self._fork_gate, contextlib.suppress(Exception):
            from lastwords import postmortem

            postmortem.load_all()
        for work in iter(self._waiting.get, None):
            work()

    def _explain(self, death: Death) -> None:
        if death.sentence is None:
            # A fault of ours must not cost the user the task.
            with contextlib.suppress(Exception):
                from lastwords import postmortem

                death.diagnosis = postmortem.examine(
                    death.pid,
                    death.status,
                    keep=not self._run.is_watched,
                    box=death.box,
                    before=death.memory_kills,
                    died=death.time,
                )
        death.signature = death.diagnosis.signature if death.diagnosis is not None else None
        if death.before is not None:
            self._compare(death.before, death)
        elif death.alone is not None:
            self._learn(death)
        self._on_explained(death)

    def _compare(self, first: Death, again: Death) -> None:
        """Each learns of the other."""
        are_known = first.signature is not None and again.signature is not None
        is_same = first.signature == again.signature if are_known else first.words == again.words
        again.alone = SAME if is_same else OTHERWISE
        told = [again]
        if first.alone != PASSED:  # the next try is over already
            first.alone, first.others_then = again.alone, again.others_then
            told.append(first)
        if are_known:
            for one in told:
                self._tell(one, again.alone)

    def _learn(self, death: Death) -> None:
        death.alone = PASSED
        known = death.diagnosis.evidence.tried_alone if death.diagnosis is not None else None
        if not death.is_innocent and (known is None or known.outcome != PASSED):
            self._tell(death, PASSED)

    def _tell(self, death: Death, outcome: str) -> None:
        if death.diagnosis is None:
            return
        with contextlib.suppress(Exception):  # as above: the death stays as it was
            from lastwords import postmortem

            first = death.before or death
            retry = postmortem.Retry(outcome, first.tries, first.others, death.others_then)
            death.diagnosis = postmortem.retried(death.diagnosis, retry, is_that_try=death.before is not None)

    def _ask(self, pid: int, box: str | None, sentence: Sentence, after: float) -> None:
        with contextlib.suppress(Exception):  # it may be dead by now
            from lastwords import postmortem

            # Its own items, if it marks any, are younger than the task; we ask all the same.
            age = postmortem.item_age(pid, box=box)
            found = postmortem.hanging(pid, min(after, age[0]), box=box) if age is not None else None
            sentence.diagnosis = found.diagnosis if found is not None else None
        self._on_asked(sentence)
