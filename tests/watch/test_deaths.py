"""The table of endings: what is a death, and what only looks like one."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from lastwords.watch.deaths import History, Verdict, judge
from lastwords.watch.ending import Ended
from lastwords.watch.last_state import LastState, Raised, Sent
from lastwords.watch.processes import Process
from lastwords.watch.status import Status

PID, PARENT = 100, 50
EXIT_1 = 1 << 8
WORKER = LastState(pid=PID, role="ForkProcess-1", worker=1, born_ns=10)
MAIN = LastState(pid=PID, born_ns=10)
DAEMON = LastState(pid=PID, role="Spark daemon", born_ns=10)


def ended(raw: int | None, state: LastState | None = WORKER, *, pid: int = PID, **more: Any) -> Ended:
    ancestors = more.pop("ancestors", (PARENT,))
    process = Process(pid=pid, own_pid=pid, box="box" if state else None, ancestors=ancestors, group=7)
    more = {"time": 1000.0, "noticed_ns": 500, **more}
    return Ended(process=process, status=Status(raw, "pidfd"), state=state, **more)


def with_(state: LastState, **changes: Any) -> LastState:
    from dataclasses import replace

    return replace(state, **changes)


def fatal(kind: str, message: str = "", time_ns: int = 100) -> tuple[Raised, ...]:
    return (Raised(kind, message, fatal=True, time_ns=time_ns),)


def sender(target: int, number: int, *, pid: int = PARENT, time_ns: int = 90) -> History:
    return History(senders=[LastState(pid=pid, sent=(Sent(target, number, time_ns),))])


TABLE = [
    # A process of ours that ended by itself.
    ("exit 0", ended(0), History(), Verdict.HEALTHY),
    ("main exits 0", ended(0, MAIN), History(), Verdict.HEALTHY),
    ("exit 0 in the middle of an item", ended(0, with_(WORKER, has_item=True)), History(), Verdict.DEATH),
    (
        "the same, and it said so",
        ended(0, with_(WORKER, has_item=True, exit_said=True)),
        History(),
        Verdict.HEALTHY,
    ),
    ("a worker's exit code", ended(3 << 8), History(), Verdict.DEATH),
    ("a worker's sys.exit", ended(3 << 8, with_(WORKER, exit_said=True)), History(), Verdict.DEATH),
    ("main's sys.exit", ended(3 << 8, with_(MAIN, exit_said=True)), History(), Verdict.HEALTHY),
    ("main in an item", ended(3 << 8, with_(MAIN, has_item=True)), History(), Verdict.DEATH),
    ("unknown, idle", ended(None), History(), Verdict.HEALTHY),
    ("unknown, in an item", ended(None, with_(WORKER, has_item=True)), History(), Verdict.DEATH),
    (
        "another program after exec",
        ended(EXIT_1, with_(WORKER, became_another_program=True)),
        History(),
        Verdict.HEALTHY,
    ),
    # Spark ends its daemon by SIGTERM, and that with exit code 1, once it is up.
    ("Spark's daemon", ended(EXIT_1, DAEMON), History(), Verdict.HEALTHY),
    ("Spark's daemon as it starts", ended(signal.SIGTERM, DAEMON), History(), Verdict.HEALTHY),
    ("the same, by its own SIGHUP", ended(signal.SIGHUP, DAEMON), History(), Verdict.HEALTHY),
    ("Spark's daemon, killed", ended(signal.SIGKILL, DAEMON), History(), Verdict.DEATH),
    # Exceptions.
    ("uncaught exception", ended(EXIT_1, with_(MAIN, raised=fatal("ValueError"))), History(), Verdict.DEATH),
    ("a worker's", ended(EXIT_1, with_(WORKER, raised=fatal("ValueError"))), History(), Verdict.DEATH),
    (
        "exception, exit 0 all the same",
        ended(0, with_(MAIN, raised=fatal("ValueError"))),
        History(),
        Verdict.HEALTHY,
    ),
    ("Ctrl-C", ended(EXIT_1, with_(MAIN, raised=fatal("KeyboardInterrupt"))), History(), Verdict.INTERRUPTED),
    # Signals.
    ("SIGSEGV without a record", ended(signal.SIGSEGV), History(), Verdict.DEATH),
    ("SIGKILL from outside", ended(signal.SIGKILL), History(), Verdict.DEATH),
    ("SIGTERM from outside", ended(signal.SIGTERM, MAIN), History(), Verdict.DEATH),
    ("SIGINT", ended(signal.SIGINT), History(), Verdict.INTERRUPTED),
    ("SIGPIPE", ended(signal.SIGPIPE), History(), Verdict.HEALTHY),
    ("Ctrl-\\", ended(signal.SIGQUIT), History(terminal_signals={signal.SIGQUIT}), Verdict.INTERRUPTED),
    ("a real SIGQUIT", ended(signal.SIGQUIT), History(), Verdict.DEATH),
    (
        "128 + SIGHUP after it",
        ended(129 << 8, MAIN),
        History(terminal_signals={signal.SIGHUP}),
        Verdict.INTERRUPTED,
    ),
    ("recorded crash, status unknown", ended(None, with_(WORKER, crash_signal=11)), History(), Verdict.DEATH),
    ("recorded crash, exit 0", ended(0, with_(WORKER, crash_signal=11)), History(), Verdict.DEATH),
    # Stopped by its own job.
    ("terminated by its parent", ended(signal.SIGTERM), sender(PID, signal.SIGTERM), Verdict.STOPPED_BY_JOB),
    ("killed by its parent", ended(signal.SIGKILL), sender(PID, signal.SIGKILL), Verdict.STOPPED_BY_JOB),
    ("by its group", ended(signal.SIGTERM), sender(-7, signal.SIGTERM), Verdict.STOPPED_BY_JOB),
    ("by kill 0", ended(signal.SIGTERM), sender(0, signal.SIGTERM), Verdict.STOPPED_BY_JOB),
    ("another group", ended(signal.SIGTERM), sender(-8, signal.SIGTERM), Verdict.DEATH),
    ("by itself", ended(signal.SIGKILL), sender(PID, signal.SIGKILL, pid=PID), Verdict.DEATH),
    (
        "by itself, and the pool then signals the dead",
        ended(signal.SIGTERM, with_(WORKER, sent=(Sent(PID, signal.SIGTERM, 80),))),
        sender(PID, signal.SIGTERM),
        Verdict.DEATH,
    ),
    (
        "from outside, and the pool then signals the dead",
        ended(signal.SIGTERM),
        sender(PID, signal.SIGTERM, time_ns=501),
        Verdict.DEATH,
    ),
    (
        "from outside, and the pool signals it while it ends",
        ended(signal.SIGTERM),
        History(senders=[LastState(pid=PARENT, sent=(Sent(PID, signal.SIGTERM, 90, too_late=True),))]),
        Verdict.DEATH,
    ),
    ("told to end, killed by another", ended(signal.SIGKILL), sender(PID, signal.SIGTERM), Verdict.DEATH),
    (
        "an older process of that pid",
        ended(signal.SIGTERM),
        sender(PID, signal.SIGTERM, time_ns=5),
        Verdict.DEATH,
    ),
    ("SIGABRT from a watchdog", ended(signal.SIGABRT), sender(PID, signal.SIGABRT), Verdict.DEATH),
    (
        "a crash, and the pool then signals the dead",
        ended(signal.SIGSEGV, with_(WORKER, crash_signal=11)),
        sender(PID, signal.SIGTERM),
        Verdict.DEATH,
    ),
    (
        "os._exit(0), and the pool then signals the dead",
        ended(0, with_(WORKER, has_item=True)),
        sender(PID, signal.SIGTERM),
        Verdict.DEATH,
    ),
    (
        "torch's workers answer SIGTERM with exit 0",
        ended(0, with_(WORKER, role="DataLoader worker", has_item=True)),
        sender(PID, signal.SIGTERM),
        Verdict.STOPPED_BY_JOB,
    ),
    (
        "a handler that exits in order",
        ended(EXIT_1, with_(WORKER, exit_said=True)),
        sender(PID, signal.SIGTERM),
        Verdict.STOPPED_BY_JOB,
    ),
    (
        "the exception came first",
        ended(EXIT_1, with_(WORKER, exit_said=True, raised=fatal("ValueError", time_ns=80))),
        sender(PID, signal.SIGTERM),
        Verdict.DEATH,
    ),
    # Programs that keep no box.
    ("grep finds nothing", ended(EXIT_1, None, is_command=True), History(), Verdict.HEALTHY),
    ("a.out crashes", ended(signal.SIGSEGV, None, is_command=True), History(), Verdict.DEATH),
    ("a.out is killed", ended(signal.SIGKILL, None, is_command=True), History(), Verdict.DEATH),
    ("make is told to end", ended(signal.SIGTERM, None, is_command=True), History(), Verdict.HEALTHY),
    ("an orphan is killed", ended(signal.SIGKILL, None), History(), Verdict.HEALTHY),
    ("an orphan crashes", ended(signal.SIGABRT, None), History(), Verdict.DEATH),
]


@pytest.mark.parametrize(
    ("ending", "history", "verdict"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_table(ending: Ended, history: History, verdict: Verdict) -> None:
    assert judge(ending, history).verdict is verdict


def parent_dies(kind: str, message: str = "", *, after: float = 1.0, **more: Any) -> Verdict:
    """A worker has died of a signal; its parent, PID, dies of an exception `after` seconds."""
    worker = ended(signal.SIGSEGV, pid=101, ancestors=(PID, PARENT), time=1000.0)
    history = History(fallen=[worker], raised=more.pop("raised", []))
    state = with_(MAIN, exit_said=True, raised=(*more.pop("handled", ()), *fatal(kind, message)))
    # The clock on the wall was set back by a day meanwhile.
    later = ended(EXIT_1, state, time=-86400.0, noticed_ns=500 + int(after * 1e9))
    return judge(later, history).verdict


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("concurrent.futures.process.BrokenProcessPool", "terminated abruptly"),
        ("RuntimeError", "DataLoader worker (pid 101) is killed by signal: Segmentation fault. "),
        ("EOFError", ""),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("subprocess.CalledProcessError", "Command '...' died with <Signals.SIGSEGV: 11>."),
    ],
)
def test_what_a_parent_says_of_its_lost_worker_is_an_echo_however_late(kind: str, message: str) -> None:
    assert parent_dies(kind, message, after=3600.0) is Verdict.CONSEQUENCE


def test_a_wrapped_echo_is_one_while_it_is_fresh() -> None:
    assert parent_dies("pipeline.StepFailed", after=0.5) is Verdict.CONSEQUENCE
    assert parent_dies("KeyError", after=3600.0) is Verdict.DEATH


def test_a_worker_s_exception_raised_again_is_a_death_of_its_own() -> None:
    raised = [Raised("ValueError", "bad item", fatal=False, time_ns=50)]
    assert parent_dies("ValueError", "bad item", raised=raised) is Verdict.DEATH
    assert (
        parent_dies("ValueError", "Caught ValueError in DataLoader worker process 0.", raised=raised)
        is Verdict.DEATH
    )


def test_a_pool_s_own_error_that_passed_through_a_worker_is_still_an_echo() -> None:
    raised = [Raised("EOFError", "", fatal=False, time_ns=50)]
    assert parent_dies("EOFError", raised=raised) is Verdict.CONSEQUENCE


def test_a_stranger_s_death_explains_nothing() -> None:
    stranger = ended(signal.SIGSEGV, pid=300, ancestors=(299,))
    state = with_(MAIN, raised=fatal("EOFError"))
    assert judge(ended(EXIT_1, state), History(fallen=[stranger])).verdict is Verdict.DEATH


def test_workers_of_a_dead_parent_are_echoes() -> None:
    history = History(fallen=[ended(signal.SIGKILL, MAIN, pid=PARENT, ancestors=())])
    broken = with_(WORKER, raised=fatal("BrokenPipeError"))
    own_fault = with_(WORKER, raised=fatal("ZeroDivisionError"))
    assert judge(ended(EXIT_1, broken), history).verdict is Verdict.CONSEQUENCE
    assert judge(ended(EXIT_1), history).verdict is Verdict.CONSEQUENCE
    assert judge(ended(EXIT_1, own_fault), history).verdict is Verdict.DEATH


def test_a_consequence_can_have_one_too() -> None:
    """The worker under a fork server dies, the fork server's parent says so: grandparents count."""
    worker = ended(signal.SIGILL, pid=103, ancestors=(102, PID))
    state = with_(MAIN, raised=fatal("BrokenProcessPool"))
    assert judge(ended(EXIT_1, state), History(fallen=[worker])).verdict is Verdict.CONSEQUENCE
