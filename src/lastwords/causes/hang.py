"""The process stood still: it neither worked nor ended.

It waits for a lock, a queue, a peer or a device that will not answer, or it computes without an end. `lastwords run
--hang-after S` asks such a process where it stands: the item, the Python line and the system call are then known. A log
alone shows only that somebody gave up in the end: a watchdog, a time-out, or Ctrl-C, whose traceback tells where the
parent waited, and not the worker.

Closer causes come first: a lock inherited by fork, a collective that a rank never reached, a disk that is gone, a CPU
that it was not given. A disk that answers late, again and again, is none of these: the process gets on, and is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, first, log_stops, nothing_said, quoted, reason, said
from lastwords.causes.words import crashed_too
from lastwords.evidence.frames import python_frames, yours
from lastwords.evidence.model import Evidence, Hang


class Way(Enum):
    """Ways to stand still, by what is to be done about them."""

    SLEEP = "sleeps"
    NETWORK = "waits for the other end of a connection"
    CHILD = "waits for another process"
    PIPE = "waits for a pipe or a file"
    DISK = "waits for a disk or a file server again and again"
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
    if found.state == "D" and found.answered:
        return Way.DISK
    if found.waits_for is not None:
        return Way.LOCK
    return next((way for way, calls in CALLS.items() if found.blocked_in in calls), Way.OTHER)


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *_watched(evidence),
        *_no_progress(evidence),
        *reason(evidence, "deadlock_said", "deadlock"),
        *reason(evidence, "waits", "waiting", "lock-wait"),
        *reason(evidence, "timed_out", "work-timeout", "collective-timeout"),
        *reason(evidence, "not_heard", "heartbeat-lost"),
        *reason(evidence, "given_up", "lost-child"),
        *reason(evidence, "guessed", "hang-guess"),
    ]
    if reasons:
        reasons.extend(reason(evidence, "waits_for_io", "io-stall"))
        reasons.extend(crashed_too(evidence))
    if log_stops(evidence):
        reasons.append(Reason("log_stops", "the log has no word of an end, as when its writer stands still"))
    yield from nothing_said(reasons)


def _no_progress(evidence: Evidence) -> Iterator[Reason]:
    """A watchdog that counts seconds says more than somebody who writes that it hangs: of what, both leave open."""
    found = said(evidence, "no-progress")
    counted = next((one for one in found if "told" not in one.fields), None)
    if counted is not None:
        yield quoted("no_progress_said", counted)
    elif found:
        yield quoted("seen_to_hang", found[0])


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
    how = "gets on slowly" if way_of(found) is Way.DISK else "does not get on"
    return f"It lives, and {how} with its item: it {words}{where}."


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
    Way.DISK: (
        Step(
            text="see how late the disk answers (await), or the server:",
            command="iostat -x 1 3; nfsiostat 1 3",
        ),
        Step(text="copy the data to a local disk first, or read it in larger parts"),
        Step(text="or allow the item more time (--hang-after)"),
    ),
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
    Way.OTHER: (Step(text="see whether it still stands there:", command="py-spy dump --pid PID"),),
}
ERROR = "so that a stuck worker becomes an error"
# How roles begin (record/adapters, engines), and the names of the systems whose logs are read: in what kind of job it hangs.
KINDS = {
    ("DataLoader worker", "torch DataLoader"): Step(text=f"torch: set `timeout=` on the DataLoader, {ERROR}"),
    ("Ray worker", "ray"): Step(
        text=f"Ray: give `ray.get` a `timeout=`, {ERROR}, and `ray.cancel(task, force=True)`"
    ),
    ("Dask worker", "dask"): Step(
        text=f"Dask: give `future.result` a `timeout=`, {ERROR}, and `future.cancel()`"
    ),
    ("Spark", "spark"): Step(
        text="Spark: have tasks that hang ended and tried again, with the reason in the driver's exception:",
        command="lastwords.spark.configure(builder, hang_after=SECONDS, kill_hung=True)",
    ),
    ("rank", "spawned process"): Step(
        text="torchrun: a rank cannot be spared; have all of them started again from the last checkpoint:",
        command="torchrun --max-restarts=3 YOUR_JOB.py",
    ),
    ("pool worker",): Step(text=f"give the pool `policy=lastwords.Policy(timeout=SECONDS)`, {ERROR}"),
}
POOL = Step(
    text="give each item a time limit, after which its worker is replaced and the others go on:",
    command="lastwords.ProcessPoolExecutor(policy=lastwords.Policy(timeout=SECONDS))",
)
CANNOT_BE_SPARED = ("rank", "spawned process", "Spark")
"""Killing one of these ends the job, or is the engine's own affair."""


def remedy(evidence: Evidence) -> Iterator[Step]:
    found, pid = evidence.hang, str(evidence.process.pid) if evidence.process else "PID"
    if found is None:
        yield Step(
            text="have every worker that stands still explained, with its line and its call:",
            command="lastwords run --hang-after 60 -- python YOUR_JOB.py",
        )
    for step in STEPS[way_of(found)] if found is not None else ():
        yield Step(text=step.text, command=step.command.replace("PID", pid) if step.command else None)
    yield from _for_its_kind(evidence, found)


def _for_its_kind(evidence: Evidence, found: Hang | None) -> Iterator[Step]:
    """A worker that hangs can be given up; the job itself cannot, and no other engine's advice helps."""
    role, is_child = _role(evidence), evidence.process is not None and evidence.process.is_child
    names = (role,) if found is not None else tuple(one.system for one in evidence.mentions or ())
    steps = [step for begins, step in KINDS.items() if any(name.startswith(begins) for name in names)]
    limit = f"{found.limit:g}" if found is not None else "60"
    for step in steps or ([POOL] if is_child else []):
        yield Step(text=step.text.replace("SECONDS", limit), command=_with_limit(step.command, limit))
    if found is not None and is_child and not role.startswith(CANNOT_BE_SPARED):
        yield Step(
            text="or have workers that hang killed, if the job can bear that:",
            command=f"lastwords run --hang-after {limit} --kill-hung -- python YOUR_JOB.py",
        )


def _role(evidence: Evidence) -> str:
    return (evidence.process.role if evidence.process else None) or ""


def _with_limit(command: str | None, limit: str) -> str | None:
    return command.replace("SECONDS", limit) if command else None


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
        "seen_to_hang": 2.85,
        "deadlock_said": 3.3,
        "waits": 1.8,
        "timed_out": 5.1,
        "not_heard": 1.2,
        "given_up": 0.6,
        "guessed": 0.8,
        "log_stops": 0.5,
        "waits_for_io": -4.0,
        "crashed_too": -3.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("hang", "sleeps-with-little-cpu", "slow-disk", "text:hang"),
    near_misses=("cpu-starvation", "io-stall", "text:collective-timeout", "text:out-of-memory"),
    fallback=2,
)
