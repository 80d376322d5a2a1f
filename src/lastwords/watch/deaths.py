"""Which endings are deaths. Pure: facts in, a judgement with its reason out.

A healthy job ends many processes, some of them by SIGKILL, and must see nothing of us; a job that breaks often
breaks in many places, and wants to hear of the first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from lastwords.watch.ending import Ended
from lastwords.watch.last_state import LastState, Raised, Sent

CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
# With these a job stops its own processes: Pool.terminate, Popen.kill, torch's and torchrun's tidying up.
STOPS = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP})
# Roles of processes that do not work on items. Everything else that has a role is a worker.
NOT_A_WORKER = frozenset({None, "", "main", "job", "resource tracker", "fork server"})
# torch/csrc/DataLoader.cpp: SIGTERM from the parent ends a worker with exit code 0, from inside a C handler.
ENDS_SILENTLY_ON_SIGTERM = frozenset({"DataLoader worker"})
# Roles whose idle processes their engine ends as it likes. A raylet is no Python, and leaves no word of the signals it
# sends: SIGKILL when the job is over, and a worker that loses its raylet exits with 1.
ENDED_BY_THEIR_ENGINE = ("Ray worker",)
# pyspark's daemon, told by SIGTERM that its executor ends, ends with exit code 1, and so do those of its workers that wait
# for a task. One that is told so while it starts, before it knows what to do about the signal, dies of it, or of the
# SIGHUP that it sends to its whole group then, before it has learnt to ignore it.
LEAVE_WHEN_TOLD = ("Spark daemon", "Spark worker without a task")
TELLING = (signal.SIGTERM, signal.SIGHUP)
# What a process meets when one that it talks to has died. Seen with SIGSEGV in a worker: in ten runs torch's
# DataLoader raised ConnectionResetError six times, RuntimeError twice and EOFError once.
BROKEN_LINKS = frozenset({"BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError", "EOFError"})
LOST_WORKERS = BROKEN_LINKS | {
    "BrokenExecutor",
    "BrokenProcessPool",
    "CalledProcessError",
    "ChildFailedError",
    "ProcessExitedException",
    "ProcessExpired",
    "TerminatedWorkerError",
}
# Any other exception of the parent this soon after a worker's death is taken for its echo: people wrap
# BrokenProcessPool into exceptions of their own.
ECHO_SECONDS = 10.0


class Verdict(Enum):
    DEATH = "death"
    HEALTHY = "healthy"
    STOPPED_BY_JOB = "stopped by its own job"
    INTERRUPTED = "interrupted from the terminal"
    CONSEQUENCE = "a consequence of an earlier death"


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str


@dataclass(slots=True)
class History:
    """What happened in this run before: what one ending means depends on it."""

    terminal_signals: set[int] = field(default_factory=set)
    """Those that the terminal sent to everybody: Ctrl-C, Ctrl-\\, closing."""
    senders: list[LastState] = field(default_factory=list)
    """Processes that sent signals, living and ended."""
    raised: list[Raised] = field(default_factory=list)
    """Exceptions that ended workers had recorded."""
    fallen: list[Ended] = field(default_factory=list)
    """Deaths and their consequences, in order."""

    def with_senders(self, senders: list[LastState]) -> History:
        return replace(self, senders=senders)


def judge(ended: Ended, history: History) -> Judgement:
    state, status = ended.state, ended.status
    if state is not None and state.crash_signal:
        return Judgement(Verdict.DEATH, "it recorded its own crash")
    if state is not None and _is_idle_of_an_engine(state, status.signal):
        return Judgement(Verdict.HEALTHY, "its engine may end it, as long as it works on nothing")
    interruption = _interruption(ended, history)
    if interruption is not None:
        return interruption
    sender = _stopped_by(ended, history.senders)
    if sender is not None and (reason := _reason_of(sender, ended)):
        return Judgement(Verdict.DEATH, f"pid {sender.pid} of the same job ended it: {reason}")
    if sender is not None:
        return Judgement(Verdict.STOPPED_BY_JOB, f"pid {sender.pid} of the same job sent it a signal")
    if status.signal:
        return _judge_signal(ended, status.signal)
    if state is None or state.became_another_program:
        return Judgement(Verdict.HEALTHY, "an exit of a program that keeps no black box is its own affair")
    if status.exit_code == 0 or status.raw is None:
        return _judge_quiet_end(state)
    return _judge_failure(ended, state, history)


def _is_idle_of_an_engine(state: LastState, number: int | None) -> bool:
    is_told = not number or number in TELLING
    roles = ENDED_BY_THEIR_ENGINE + LEAVE_WHEN_TOLD if is_told else ENDED_BY_THEIR_ENGINE
    is_of_engine = state.role is not None and state.role.startswith(roles)
    return is_of_engine and not state.has_item and state.fatal is None


def _interruption(ended: Ended, history: History) -> Judgement | None:
    number, fatal = ended.status.signal, ended.state.fatal if ended.state else None
    if number == signal.SIGINT or (fatal and fatal.name == "KeyboardInterrupt"):
        return Judgement(Verdict.INTERRUPTED, "somebody pressed Ctrl-C, or asked for the same")
    if number in history.terminal_signals:
        return Judgement(Verdict.INTERRUPTED, "the terminal sent that signal to the whole job")
    code = ended.status.exit_code
    if code is not None and code - 128 in history.terminal_signals:
        return Judgement(Verdict.INTERRUPTED, "its exit code names the signal that the terminal sent")
    return None


def _stopped_by(ended: Ended, senders: Iterable[LastState]) -> LastState | None:
    """The other process of the job that told this one to stop."""
    if ended.status.signal and (ended.status.signal not in STOPS or _sent_it_itself(ended)):
        return None
    for sender in senders:
        if sender.pid != ended.process.own_pid and any(_stops(sent, ended) for sent in sender.sent):
            return sender
    return None


def _reason_of(sender: LastState, ended: Ended) -> str | None:
    """What made it end a worker in the middle of its work, as an engine's memory monitor does."""
    born = ended.state.born_ns if ended.state else 0
    reasons = (one for one in sender.stop_reasons if one.target == ended.process.own_pid)
    return next((one.text for one in reasons if one.time_ns >= born), None)


def _sent_it_itself(ended: Ended) -> bool:
    """`os.kill(os.getpid(), ...)` in a worker: that its pool then signals everybody comes too late to matter."""
    sent = ended.state.sent if ended.state else ()
    return any((one.target, one.signal) == (ended.process.own_pid, ended.status.signal) for one in sent)


def _stops(sent: Sent, ended: Ended) -> bool:
    process, state = ended.process, ended.state
    if (
        sent.too_late
        or sent.signal not in STOPS
        or not _is_target(sent.target, process.own_pid, process.group)
    ):
        return False
    born = state.born_ns if state else 0  # pids are reused
    fatal = state.fatal if state else None
    if sent.time_ns < born or (fatal is not None and sent.time_ns > fatal.time_ns):
        return False
    # A pool that finds one worker gone signals all of them, the dead one too: only a process that can have heard
    # it was stopped. (Senders note a signal before they send it.)
    if sent.time_ns > ended.noticed_ns:
        return False
    return ended.status.signal == sent.signal if ended.status.signal else _answers_with_an_exit(ended)


def _answers_with_an_exit(ended: Ended) -> bool:
    state = ended.state
    return state is not None and (
        state.exit_said or (ended.status.exit_code == 0 and state.role in ENDS_SILENTLY_ON_SIGTERM)
    )


def _is_target(target: int, pid: int, group: int | None) -> bool:
    """As kill(2) has it: 0 is the sender's own group, which nearly always is that of the whole job."""
    return target in (0, pid) or (group is not None and target == -group)


def _judge_signal(ended: Ended, number: int) -> Judgement:
    if number == signal.SIGPIPE:
        return Judgement(Verdict.HEALTHY, "its reader went away, as with `| head`")
    explained = CRASHES | {signal.SIGKILL} if ended.is_command else CRASHES
    if ended.state is None and number not in explained:
        return Judgement(Verdict.HEALTHY, "a program without a black box was told to end")
    return Judgement(Verdict.DEATH, f"signal {number}")


def _judge_quiet_end(state: LastState) -> Judgement:
    if state.has_item and not state.exit_said:
        return Judgement(Verdict.DEATH, "it ended in the middle of an item, without a word")
    return Judgement(Verdict.HEALTHY, "it ended as it should")


def _judge_failure(ended: Ended, state: LastState, history: History) -> Judgement:
    """A non-zero exit code."""
    echo = _echo_of(ended, state, history)
    if echo is not None:
        return Judgement(Verdict.CONSEQUENCE, f"pid {echo.process.pid} had died before")
    if state.fatal is not None:
        return Judgement(Verdict.DEATH, f"nothing caught {state.fatal.name}")
    if _is_worker(state):
        return Judgement(Verdict.DEATH, f"a worker ended with exit code {ended.status.exit_code}")
    if not state.exit_said and (state.has_item or ended.is_command):
        # os._exit, or a C library that calls exit(): Python's own end was never reached.
        return Judgement(Verdict.DEATH, "it ended without a word")
    return Judgement(Verdict.HEALTHY, "sys.exit with a number is the program's own decision")


def _is_worker(state: LastState) -> bool:
    return state.worker is not None or state.role not in NOT_A_WORKER


def _echo_of(ended: Ended, state: LastState, history: History) -> Ended | None:
    """The earlier death of a descendant, or of an ancestor, that made this process end, too."""
    for earlier in reversed(history.fallen):
        is_above = ended.process.pid in earlier.process.ancestors
        if is_above and _is_echo_below(ended, state, earlier, history.raised):
            return earlier
        if earlier.process.pid in ended.process.ancestors and _is_echo_above(state):
            return earlier
    return None


def _is_echo_below(ended: Ended, state: LastState, earlier: Ended, raised: Iterable[Raised]) -> bool:
    fatal = state.fatal
    if fatal is None or any(_passes_on(fatal, one) for one in (*raised, *_handled(state))):
        return False
    is_about_workers = fatal.name in LOST_WORKERS or "DataLoader worker" in fatal.message
    return is_about_workers or _seconds_between(earlier, ended) <= ECHO_SECONDS


def _seconds_between(earlier: Ended, later: Ended) -> float:
    """On the clock that nobody sets."""
    return (later.noticed_ns - earlier.noticed_ns) / 1e9


def _handled(state: LastState) -> Iterable[Raised]:
    return (one for one in state.raised if not one.fatal)


def _is_echo_above(state: LastState) -> bool:
    return state.fatal is None or state.fatal.name in BROKEN_LINKS


def _passes_on(fatal: Raised, worker: Raised) -> bool:
    """The parent died of what a worker raised: pools raise it again as it was, torch wraps its text."""
    if worker.name in LOST_WORKERS:
        return False
    message = worker.message.removesuffix("…")
    is_same = worker.name == fatal.name and message in fatal.message
    return is_same or f"Caught {worker.name} in" in fatal.message
