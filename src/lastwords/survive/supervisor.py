"""Keeps a number of workers busy and alive. One thread owns all state; everybody else leaves notes for it.

`submit` and the finalizers of borrowed results append to a deque and wake the owner if it sleeps: no lock is taken on
the way in or out, so no lock can be held by somebody who dies or forks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING

from lastwords import recording
from lastwords.survive import descriptors
from lastwords.survive.breaker import HALF_OPEN, OPEN, Breaker
from lastwords.survive.deaths import Coroner, Death, Sentence
from lastwords.survive.dispatch import Dispatch, Seat
from lastwords.survive.guest import Chair, make_way
from lastwords.survive.handle import Functions, Lend, WorkerHandle
from lastwords.survive.limits import Limits, has_got_on, polite_bytes
from lastwords.survive.policy import OUT_OF_MEMORY, Policy, WorkerDied, initializer_failed
from lastwords.survive.progress import Kind, Progress
from lastwords.survive.quarantine import Quarantine, refusal
from lastwords.survive.starts import Starts
from lastwords.survive.tasks import Task
from lastwords.survive.trials import Trials
from lastwords.survive.worker import Settings

if TYPE_CHECKING:
    from lastwords.survive.worker import Setup

log = logging.getLogger("lastwords.survive")
"""Each death, and what became of it: the record's attribute `lastwords` has the details."""
FIRST_LOOK, LONGEST_LOOK = 0.01, 0.05
"""How soon the owner looks at batches by itself: a short task's result must not wait for the long one behind it."""
RING = (1).to_bytes(8, sys.byteorder)
"""What an eventfd is told."""
BUDGET = 256 << 20
"""Bytes in flight each way, for each worker."""


class Supervisor:
    """`setup`: a function and its arguments, called in each new worker first; or what gives them for a seat, asked by
    the owner's thread each time a worker is started there.

    `is_prompt`: each result is heard at once, not in the company of the next. `fork_gate`: held by whoever does not
    want a worker to be started just now. `lending`: takes care of a worker's large results, and needs their pages kept.
    `on_death`: called with each death when it is explained; `on_passed`: with one whose task has then passed alone.
    `on_broken`: called once, with the reason, when workers cannot be kept; all tasks have failed by then.
    """

    def __init__(  # noqa: PLR0913  # all but two by name
        self,
        workers: int,
        context: BaseContext,
        *,
        setup: Setup | Callable[[int], Setup] | None = None,
        policy: Policy | None = None,
        role: str = "pool worker",
        tasks_per_worker: int | None = None,
        budget: int = BUDGET,
        is_prompt: bool = False,
        fork_gate: threading.Lock | None = None,
        lending: Lend | None = None,
        progress: Kind | None = None,
        on_death: Callable[[Death], object] | None = None,
        on_passed: Callable[[Death], object] | None = None,
        on_broken: Callable[[BaseException], object] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.broken: BaseException | None = None
        self.deaths = self.retried = self.poisoned = self.replaced = self.recycled = 0
        self._context = context
        self._on_death, self._on_broken = on_death, on_broken
        # First what may be refused: a file that cannot be read, a bar that is not installed.
        self._quarantine = Quarantine(self.policy.quarantine)
        self._known_poison = self._quarantine.known()
        self._progress = Progress(progress, self._counts) if progress is not None else None
        self._notes: deque[Callable[[], object]] = deque()
        self._functions = Functions()
        self._run = recording.RunOfWorkers()
        is_own_child = context.get_start_method() != "forkserver"
        self._setup, self._lending = setup, lending
        self._settings = Settings(
            role,
            self._run.directory,
            budget,
            os.getpid() if is_own_child else 0,
            is_prompt=is_prompt,
            weighs_above=polite_bytes(self.policy),
            keeps_pages=lending is not None,
        )
        if context.get_start_method() == "fork":
            recording.prepare_to_fork()
        self._fork_gate = fork_gate or threading.Lock()
        self._coroner = Coroner(self._run, self._fork_gate, self._explained, self._asked)
        self._limits = Limits(self.policy)
        self._breaker = Breaker(self.policy.intensity)
        self._dispatch = Dispatch(workers, self._functions, tasks_per_worker)
        self._inbox = self._dispatch.queue
        self.trials = Trials(self._coroner, on_passed)
        self._dispatch.on_lived = self.trials.lived
        if self._known_poison:
            self._dispatch.refuses = self._refuses
        self._starts = Starts()
        self._unexplained = 0
        self._later: list[tuple[float, Task, bool]] = []
        """When it is tried again, and whether with nothing beside it."""
        self._to_explain: list[Death] = []
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, tuple[Seat, WorkerHandle]] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Not the owner of its number: a copy in a fork must not close what has the number there.
        self._ringer = open(self._bell, "wb", buffering=0, closefd=False)  # noqa: SIM115  # closed by `_close`
        self._epoll.register(self._bell, select.EPOLLIN)
        descriptors.hold(self._bell, self._epoll.fileno())
        self._is_asleep = self._is_stopping = self._is_hungry = self._has_ended = False
        self._chair, self._look = Chair(), FIRST_LOOK
        self._thread = threading.Thread(target=self._own, name="lastwords supervisor")
        try:
            self._thread.start()
        except BaseException:  # no more threads
            self._close()
            raise

    # From any thread

    def submit(self, task: Task) -> None:
        """Hands it to the owner. After `stop` or a break it fails at once or at the next turn."""
        if task.seat is None:
            self._inbox.append(task)
            if self._is_hungry and self._is_asleep:
                self._wake()
        else:
            self.note(lambda: self._dispatch.direct(task))

    def start_all(self) -> None:
        """Starts every worker now, and not when its first task comes."""
        self.note(self._begin_all)

    def retire(self, seat: int) -> None:
        """Ends the worker there, after what it holds. The next task for that seat has another one started."""
        self.note(lambda: self._dispatch.retire(self._dispatch.seats[seat]))

    def stop(self, *, wait: bool = True, cancel: Callable[[Task], object] | None = None) -> None:
        """Ends the workers after all that was submitted; with `cancel`, what no worker has is handed to it instead."""
        self.note(lambda: self._stop(cancel))
        if wait:
            self._thread.join()

    def kill(self) -> None:
        """Ends the workers at once; what they ran fails."""
        self.note(lambda: self._break(WorkerDied("the workers were killed on request")))

    def note(self, what: Callable[[], object]) -> None:
        """Has the owner call it."""
        self._notes.append(what)
        if self._is_asleep:
            self._wake()

    @property
    def done(self) -> int:
        """Tasks that workers have finished."""
        return self._dispatch.done

    def pids(self) -> list[int]:
        workers = [seat.worker for seat in self._dispatch.seats]
        return [worker.pid for worker in workers if worker is not None]

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _wake(self) -> None:
        if self._has_ended:
            self._refuse_queued()
            return
        self._is_asleep = False
        self._chair.call_back()
        # As a file, which knows that it is closed: its number may stand for another one by now.
        with contextlib.suppress(OSError, ValueError):
            self._ringer.write(RING)

    # The owner's turn

    def _own(self) -> None:
        self._chair.sit_down()
        try:
            self._read_notes()
            while not self._is_done():
                self._turn()
                self._read_notes()
                make_way(self)
        except BaseException as error:
            self._break(error)
            raise
        finally:
            self._close()
            self._chair.stand_up()

    def _read_notes(self) -> None:
        while self._notes:
            self._notes.popleft()()

    def _turn(self) -> None:
        self._bring_back()
        self._explain_when_replaced()
        self._enforce_limits()
        self._mind_breaker()
        had_work = self._is_stopping and self._dispatch.has_work()
        self._begin_wanted()  # before one that works gets it all, and those behind a long task wait in its hands
        self._dispatch.fill()
        if had_work and not self._dispatch.has_work():
            return  # the rest was cancelled: nothing will wake us, and the end has come
        self._begin_wanted()
        self._is_hungry = self._dispatch.is_hungry()
        self._is_asleep = True
        if self._notes or self._chair.is_wanted or (self._inbox and self._is_hungry):
            self._is_asleep = False
        heard = self._hear(self._epoll.poll(self._timeout()))
        self._is_asleep = False
        if not heard and self._dispatch.is_batched():
            self._look_around()
        if self._progress is not None:
            self._progress.pass_time()

    def _counts(self) -> dict[str, int]:
        done = self._dispatch.done + self.poisoned
        total = done + self._dispatch.count_unfinished() + len(self._later)
        return {"done": done, "total": total, "retried": self.retried, "poisoned": self.poisoned}

    def _timeout(self) -> float:
        if not self._is_asleep:
            return 0.0
        waits = [self._limits.due(self._dispatch.seats)]
        if self._dispatch.is_batched():
            waits.append(self._look)
        if self._later:
            waits.append(max(0.0, min(one[0] for one in self._later) - time.monotonic()))
        if self._dispatch.is_held_back() or self._starts.is_pausing(time.monotonic()):
            waits.append(LONGEST_LOOK)
        return min((one for one in waits if one >= 0), default=-1)

    def _hear(self, events: list[tuple[int, int]]) -> bool:
        """Endings last: a replacement gets the numbers of the descriptors that its predecessor leaves."""
        ended = []
        for descriptor, _ in events:
            if descriptor == self._bell:
                os.read(self._bell, len(RING))
                self._return_blocks()
                continue
            seat, worker = self._by_descriptor[descriptor]
            if descriptor == worker.pidfd:
                ended.append((seat, worker))
            else:
                if not worker.empty_bell():
                    self._epoll.unregister(descriptor)  # else it is readable for ever
                self._collect(seat, worker)
        for seat, worker in ended:
            self._ended(seat, worker)
        if events:
            self._look = FIRST_LOOK
        return bool(events)

    def _collect(self, seat: Seat, worker: WorkerHandle) -> None:
        finished = self._dispatch.collect(seat, worker)
        if worker.box is None:
            worker.find_box(self._run)
        if finished:
            self._starts.finished()
            self._breaker.finished()
        if worker.refusal is not None:
            self._break(initializer_failed(worker.refusal))

    def _look_around(self) -> None:
        """Nobody rang: results may lie there all the same, and tasks wait behind a long one."""
        self._look = min(self._look * 2, LONGEST_LOOK)
        for seat in self._dispatch.seats:
            if seat.worker is not None and seat.worker.has_news:
                self._look = FIRST_LOOK
                self._collect(seat, seat.worker)
        self._dispatch.share_out()

    def _return_blocks(self) -> None:
        for seat in self._dispatch.seats:
            if seat.worker is not None:
                seat.worker.return_blocks()

    def _bring_back(self) -> None:
        """Tasks whose pause is over."""
        if self._later:
            now = time.monotonic()
            due = [one for one in self._later if one[0] <= now]
            self._later = [one for one in self._later if one[0] > now]
            for _, task, is_quiet in due:
                self._dispatch.alone(task, is_quiet=is_quiet)

    def _explain_when_replaced(self) -> None:
        """Not sooner: explaining is work for the same interpreter, and would hold up whoever starts the replacement."""
        if not self._to_explain:
            return
        # Workers that die while they start would put it off for ever.
        if self._starts.failed or not self._dispatch.is_any_starting():
            for death in self._to_explain:
                self._coroner.explain(death)
            self._to_explain.clear()

    # What the policy allows

    def _enforce_limits(self) -> None:
        for worker, sentence in self._limits.overdue(self._dispatch.seats):
            worker.sentence = sentence
            assert self.policy.timeout is not None
            self._coroner.ask(worker.pid, worker.box, sentence, self.policy.timeout)
        for seat, verdict in self._limits.weigh(self._dispatch.seats):
            if verdict is None:
                self.recycled += 1
                self._dispatch.retire(seat)
            elif seat.worker is not None:
                seat.worker.sentence = verdict
                self._carry_out(verdict)

    def _asked(self, sentence: Sentence) -> None:
        """Called by the coroner's thread."""
        self.note(lambda: self._carry_out(sentence))

    def _carry_out(self, sentence: Sentence) -> None:
        """Unless it has got on meanwhile."""
        for seat in self._dispatch.seats:
            worker = seat.worker
            if worker is None or worker.sentence is not sentence:
                continue
            if has_got_on(worker, sentence):
                worker.sentence = None
            else:
                sentence.is_carried_out = True
                worker.kill()

    def _mind_breaker(self) -> None:
        breaker = self._breaker
        breaker.pass_time(time.monotonic())
        is_trying = breaker.state == HALF_OPEN
        self._dispatch.one_by_one = is_trying
        self._dispatch.side_by_side = 1 if is_trying or self._limits.is_tight else None
        if breaker.state == OPEN:
            self._dispatch.side_by_side = 0
        if breaker.state == OPEN and breaker.reason is not None:
            waiting = [*self._dispatch.take_waiting(), *(one[1] for one in self._later)]
            self._later = []
            for task in waiting:
                task.failed(breaker.reason)

    # Beginnings and endings

    def _begin(self, seat: Seat) -> None:
        try:
            with self._fork_gate:
                setup = self._setup(seat.index) if callable(self._setup) else self._setup
                worker = WorkerHandle(seat.index, self._context, self._settings, setup, self._lending)
        except OSError as error:
            if self._starts.was_refused(time.monotonic()) and not self._dispatch.is_anybody_busy():
                self._break(error)
            return
        except Exception as error:  # noqa: BLE001  # a set-up that cannot be pickled, a process that may have no children
            self._break(error)
            return
        self._starts.begun()
        seat.worker = worker
        for descriptor in (worker.bell, worker.pidfd):
            self._by_descriptor[descriptor] = (seat, worker)
            self._epoll.register(descriptor, select.EPOLLIN)

    def _begin_wanted(self) -> None:
        for seat in self._dispatch.wanted():
            if self.broken is None and self._starts.may_begin(time.monotonic()):
                self._begin(seat)

    def _begin_all(self) -> None:
        for seat in self._dispatch.vacant():
            self._begin(seat)

    def _ended(self, seat: Seat, worker: WorkerHandle) -> None:
        finished = self._dispatch.collect(seat, worker)
        number, step, position = worker.running()
        pid, status = worker.pid, worker.exit_status()
        box, held_box = worker.take_box(self._run)
        was_serving = worker.is_serving
        seat.worker = None
        killer = worker.in_hand.pop(number)[0] if number else None
        seat.is_lonely_handed = False
        seat.is_held = killer is not None and killer.seat is not None
        if killer is not None and seat.lonely is killer:
            seat.be_together_again()
        unfinished = [held[0] for held in worker.in_hand.values() if held[0] is not seat.lonely]
        sentence = worker.sentence if worker.sentence is not None and worker.sentence.is_carried_out else None
        if killer is not None and sentence is not None and sentence.number != number:
            unfinished[:0] = killer.left()  # it began between the sentence and the end
            killer = None
        self._forget(worker)
        self._dispatch.again(unfinished, seat)
        if worker.refusal is not None:
            self._break(initializer_failed(worker.refusal))
        if killer is None and status == 0 and worker.is_retiring:
            if box is not None:
                self._run.forget(box)
            if held_box is not None:
                os.close(held_box)
            return
        self.deaths += 1
        step = step if was_serving else "starting"
        death = Death(seat.index, pid, status, step, killer, position, box, worker.memory_kills)
        death.held_box, death.others = held_box, self._dispatch.count_others(seat)
        if killer is not None:
            death.task, others = killer.split(death)
            self._dispatch.again(others, seat)
            if death.task is not None:
                death.task.count(death)
            self.trials.died(death, seat.beside)
        if sentence is not None:
            death.sentence, death.diagnosis = sentence, sentence.diagnosis
        self._mourn(seat, death, has_finished=bool(finished) or killer is not None)

    def _forget(self, worker: WorkerHandle) -> None:
        for descriptor in (worker.bell, worker.pidfd):
            del self._by_descriptor[descriptor]
            with contextlib.suppress(FileNotFoundError):  # a bell that never rings again
                self._epoll.unregister(descriptor)
        worker.close()

    def _mourn(self, seat: Seat, death: Death, *, has_finished: bool) -> None:
        """A replacement first, then the question why."""
        if self.broken is not None:
            death.let_box_go()
            if death.task is not None:
                death.task.failed(self.broken)
            return
        if death.task is None:
            is_start = death.step == "starting"
            self._starts.died_idle(time.monotonic(), while_starting=is_start, has_finished=has_finished)
        death.opens_breaker = self._breaker.died(time.monotonic())
        is_wanted = not self._is_stopping or self._dispatch.has_work()
        if is_wanted and self._starts.may_begin(time.monotonic()):
            self.replaced += 1
            self._begin(seat)
        if death.task is not None and self._is_tried_again(death):
            # Those behind it in its seat wait for it: it does not wait for the diagnosis.
            is_needed = self._coroner.is_behind or death.task.seat is not None
            death.is_decided = is_needed and self._breaker.state != OPEN
        if death.is_decided:
            self._decide(death)
        if not self._coroner.is_behind or not death.is_decided:
            self._unexplained += 1
            self._to_explain.append(death)
        else:
            death.let_box_go()

    def _is_tried_again(self, death: Death) -> bool:
        return death.task is not None and self.policy.tries_again(
            death.task.attempts, death.cause, is_innocent=death.is_innocent
        )

    def _explained(self, death: Death) -> None:
        """Called by the coroner's thread."""
        self.note(lambda: self._after_inquest(death))

    def _after_inquest(self, death: Death) -> None:
        self._unexplained -= 1
        death.let_box_go()
        if log.isEnabledFor(logging.INFO):
            log.info("%s", death.headline, extra={"lastwords": death.as_dict()})
        if not death.is_decided:
            self._decide(death)
        if self._on_death is not None:
            self._on_death(death)

    def _decide(self, death: Death) -> None:
        task = death.task
        is_start = task is None and death.step == "starting"
        if is_start and death.is_innocent:
            self._starts.was_killed_from_outside()
        if self._starts.are_hopeless(after_start=is_start):
            self._break(death.error())
        elif death.opens_breaker:
            self._breaker.say_why(death)
        if task is None:
            return
        if self.broken is not None:
            task.failed(self.broken)
        elif self._breaker.state != OPEN and self._is_tried_again(death):
            self.retried += 1
            task.killed(death)
            self.trials.begin(task, death)
            pause = self.policy.pause(task.attempts, is_innocent=death.is_innocent)
            self._later.append((time.monotonic() + pause, task, death.cause == OUT_OF_MEMORY))
        else:
            self._poison(task, death)

    def _poison(self, task: Task, death: Death) -> None:
        error = death.error()
        self.trials.end(task)
        if task.poisoned(death, error):
            self._dispatch.alone(task)
            return
        if task.seat is not None:
            self._dispatch.seats[task.seat].is_held = False
        self.poisoned += 1
        self._quarantine.add(error, death)
        self._give_instead(task, error)

    def _refuses(self, task: Task) -> bool:
        """It was poison in an earlier run, and is not tried again."""
        noted = self._known_poison.get(recording.describe_call(task.work, task.args, dict(task.kwargs)))
        if noted is None or not task.begins():
            return False
        self.poisoned += 1
        error = WorkerDied(refusal(noted, self._quarantine.path or ""), item=noted["key"])
        self._give_instead(task, error)
        return True

    def _give_instead(self, task: Task, error: WorkerDied) -> None:
        if self.policy.on_poison == "raise":
            task.failed(error)
            return
        try:
            task.succeeded(self.policy.instead(error))
        except BaseException as raised:  # noqa: BLE001  # the user's own function
            task.failed(raised)

    # The end

    def _stop(self, cancel: Callable[[Task], object] | None) -> None:
        self._is_stopping = True
        if cancel is not None:
            for task in self._dispatch.take_queued():
                cancel(task)

    def _is_done(self) -> bool:
        if not self._is_stopping and self.broken is None:
            return False
        if self.broken is None and (self._dispatch.has_work() or self._later or self._unexplained):
            return False
        self._dispatch.retire_all()
        return not self._by_descriptor and not self._unexplained

    def _break(self, reason: BaseException) -> None:
        """Nothing goes on from here: all tasks fail, all workers end."""
        if self.broken is not None:
            return
        self.broken = reason
        for task in [*self._dispatch.take_all(), *(one[1] for one in self._later)]:
            task.failed(reason)
        self._later = []
        for seat in self._dispatch.seats:
            if seat.worker is not None:
                seat.worker.is_retiring = True
                seat.worker.kill()
        if self._on_broken is not None:
            self._on_broken(reason)

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.close()
        self._coroner.close()
        for worker in {
            worker for _, worker in self._by_descriptor.values()
        }:  # none, unless an error of ours brought us here
            worker.kill()
            worker.exit_status()
            self._forget(worker)
        descriptors.let_go(self._epoll.fileno())
        self._epoll.close()
        self._ringer.close()
        descriptors.close(self._bell)
        self._run.close()
        for task in self._dispatch.take_queued():
            task.failed(self._end())
        # Whoever submits from now on finds somebody asleep, wants to wake it, and is told: see `_wake`.
        self._has_ended = self._is_hungry = self._is_asleep = True
        self._refuse_queued()

    def _refuse_queued(self) -> None:
        """At the end, by the owner and by whoever comes too late: each task is taken by one of them."""
        with contextlib.suppress(IndexError):
            while True:
                self._inbox.popleft().failed(self._end())

    def _end(self) -> BaseException:
        return self.broken or WorkerDied("the workers have been stopped")
