"""The process stood still: it neither worked nor ended.

It waits for a lock, a queue, a peer or a device that will not answer, or it computes without an end. `lastwords run
--hang-after S` asks such a process where it stands: the item, the Python line and the system call are then known. A log
alone shows only that somebody gave up in the end: a watchdog, a time-out, or Ctrl-C, whose traceback tells where the
parent waited, and not the worker.

Closer causes come first: a lock inherited by fork, a collective that a rank never reached, a disk that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, first, nothing_said, reason
from lastwords.evidence.frames import python_frames, yours
from lastwords.evidence.model import Evidence, Hang


class Way(Enum):
    """Ways to stand still, by what is to be done about them."""

    SLEEP = "sleeps"
    NETWORK = "waits for the other end of a connection"
    CHILD = "waits for another process"
    PIPE = "waits for a pipe or a file"
    LOCK = "waits for a lock"
    RUNNING = "computes, and does not come to an end"
    STOPPED = "was stopped by a signal or a debugger"
    FROZEN = "is frozen, as `docker pause` does it"
    OTHER = "waits"


FROZEN = ("__refrigerator", "do_freezer_trap", "get_signal")
"""Where in the kernel the tasks of a frozen group stand; they look as if they waited for a disk."""
CALLS = {
    Way.SLEEP: ("nanosleep", "clock_nanosleep", "pause", "rt_sigtimedwait", "sigsuspend", "rt_sigsuspend"),
    Way.NETWORK: ("recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "accept4"),
    Way.CHILD: ("wait4", "waitid"),
    Way.PIPE: (
        "read",
        "write",
        "readv",
        "writev",
        "pread64",
        "pwrite64",
        "splice",
        "open",
        "openat",
        "flock",
    ),
    Way.LOCK: ("futex",),
}


def way_of(found: Hang) -> Way:
    if found.state in ("T", "t"):
        return Way.STOPPED
    if found.wait_channel in FROZEN:
        return Way.FROZEN
    if found.blocked_in == "running" or found.state == "R":
        return Way.RUNNING
    if found.waits_for is not None:
        return Way.LOCK
    return next((way for way, calls in CALLS.items() if found.blocked_in in calls), Way.OTHER)


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *_watched(evidence),
        *reason(evidence, "no_progress_said", "no-progress"),
        *reason(evidence, "deadlock_said", "deadlock"),
        *reason(evidence, "waits", "waiting", "lock-wait"),
        *reason(evidence, "timed_out", "work-timeout", "collective-timeout"),
    ]
    yield from nothing_said(reasons)


def _watched(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.hang
    if found is None:
        return
    is_running = found.blocked_in == "running"
    place = ", and it runs" if is_running else f", in {found.blocked_in}" if found.blocked_in else ""
    yield Reason(
        "stands_still", f"its item takes {found.seconds:.0f} s{place}; {found.limit:.0f} s were allowed"
    )
    if found.others:
        alike = f"{found.alike} of" if found.alike else "none of"
        yield Reason("beside_it", f"{alike} the {found.others} other workers hang in the same call")


def sentence(evidence: Evidence) -> str:
    found = evidence.hang
    if found is None:
        return "It stood still, and somebody gave up on it."
    what = found.waits_for if way_of(found) is Way.LOCK else None
    words = f"waits for {what}" if what else way_of(found).value
    frame = yours(python_frames(evidence))
    where = f", in {frame.function}()" if frame is not None else ""
    return f"It lives, and does not get on with its item: it {words}{where}."


def facts(evidence: Evidence) -> Facts:
    found, watched = first(evidence, "no-progress", "waiting", "deadlock", "work-timeout"), evidence.hang
    frame = yours(python_frames(evidence)) if watched else None
    return {
        "where": f"{frame.file}:{frame.line}" if frame else field(evidence, ("waiting",), "where"),
        "line": found.line if found else None,
        "blocked_in": watched.blocked_in if watched else None,
        "waits_for": watched.waits_for if watched else None,
        "seconds": round(watched.seconds, 1) if watched else None,
        "others_alike": watched.alike if watched else None,
    }


STEPS = {
    Way.SLEEP: (Step(text="it sleeps on purpose: bound the sleep, or wait for the event with a time-out"),),
    Way.NETWORK: (
        Step(
            text="give every connection a time-out (`socket.setdefaulttimeout(60)`): a silent peer becomes an error"
        ),
        Step(text="see who the peer is, and whether it lives:", command="ss -tnp"),
    ),
    Way.CHILD: (Step(text="see what its child does:", command="ps -eo pid,ppid,stat,wchan:24,cmd --forest"),),
    Way.PIPE: (Step(text="see who has the other end:", command="ls -l /proc/PID/fd"),),
    Way.LOCK: (
        Step(text="see in the other threads, below, who has it; take locks always in the same order"),
        Step(text="take it with a time-out, so that a deadlock becomes an error: `lock.acquire(timeout=60)`"),
    ),
    Way.RUNNING: (
        Step(
            text="see whether it gets on: the same line again and again is a loop:",
            command="py-spy top --pid PID",
        ),
        Step(text="or the item is only large: then allow it more time (--hang-after)"),
    ),
    Way.STOPPED: (Step(text="let it go on:", command="kill -CONT PID"),),
    Way.FROZEN: (
        Step(text="let it go on: `docker unpause`, or write THAWED (0 in version 2) into its freezer group"),
    ),
    Way.OTHER: (),
}


def remedy(evidence: Evidence) -> Iterator[Step]:
    found, pid = evidence.hang, str(evidence.process.pid) if evidence.process else "PID"
    if found is None:
        yield Step(
            text="have every worker that stands still explained, with its line and its call:",
            command="lastwords run --hang-after 60 -- python YOUR_JOB.py",
        )
    for step in STEPS[way_of(found)] if found is not None else ():
        yield Step(text=step.text, command=step.command.replace("PID", pid) if step.command else None)
    yield Step(text="torch: set `timeout=` on the DataLoader, so that a stuck worker becomes an error")
    if found is not None:
        yield Step(
            text="or have workers that hang killed, if the job can bear that:",
            command=f"lastwords run --hang-after {found.limit:g} --kill-hung -- python YOUR_JOB.py",
        )


CAUSE = Cause(
    id="hang",
    title="It stood still",
    doc=__doc__,
    needs=("hang", "mentions"),
    prior=-3.0,
    weights={
        "stands_still": 5.0,
        "beside_it": 0.1,
        "no_progress_said": 4.3,
        "deadlock_said": 3.3,
        "waits": 1.8,
        "timed_out": 5.1,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("hang", "text:hang"),
    near_misses=("text:collective-timeout", "text:out-of-memory"),
    fallback=2,
)
