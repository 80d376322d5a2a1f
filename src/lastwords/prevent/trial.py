"""The job itself, for its first batches: started for real and recorded, looked at from outside, then asked to stop.

The job's own process group and session end with it: what it leaves running is ended by us, because we are the
reaper of its orphans. It is asked with SIGINT, as Ctrl-C would: what a job does then is its own and usual way to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from lastwords import _native
from lastwords.prevent import sampling
from lastwords.prevent.measured import Trial
from lastwords.prevent.sampling import Sampler

VARIABLE = "LASTWORDS_DOCTOR"
"""Set in a job that is only tried: one that wants to can leave its checkpoints alone."""
GLANCE = 0.05
# What a job may take to end by itself: to shut its workers down, to write what it writes at the end.
POLITE_SECONDS = {signal.SIGINT: 20.0, signal.SIGTERM: 10.0}
MOST_SAID = 12
_C = ctypes.CDLL(None)
_OWN_SEGMENT = re.compile(r"torch_(\d+)_")


class JobRefused(Exception):
    """The command could not be started; the text says why."""


@dataclass(frozen=True, slots=True)
class Dose:
    """How much of the job is enough."""

    batches: int = 16
    seconds: float = 120.0


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    home: str
    output: str
    begun: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun


@contextlib.contextmanager
def tried(words: Sequence[str], dose: Dose) -> Iterator[tuple[Trial, str]]:
    """What was measured, and the home in which deaths of the trial lie until the end of the `with`.

    Raises JobRefused.
    """
    home = tempfile.mkdtemp(prefix="lastwords-doctor-")
    try:
        yield _run(words, dose, home), home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(words: Sequence[str], dose: Dose, home: str) -> Trial:
    with contextlib.suppress(OSError):
        _native.become_subreaper()
    segments, children = _segments(), _children()
    sampler, kills = Sampler(home), _memory_kills()
    with _told_to_stop():
        running = _start(words, home)
        try:
            ended = _watch(running, sampler, dose)
        finally:
            _stop(running.process)
            left = _end_orphans(children)
            _remove_segments(sampler.pids, segments)
    return _told(words, running, sampler, ended, left, _most_new(kills, _memory_kills()))


@contextlib.contextmanager
def _told_to_stop() -> Iterator[None]:
    """Whoever ends us ends the job, too: it has a session of its own, and would go on for days."""

    def stop(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _die_with_us() -> None:
    """For the case that we are killed: the kernel tells the job to stop. It is inherited over exec, not over fork."""
    set_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    _C.prctl(set_death_signal, int(signal.SIGINT))


def _start(words: Sequence[str], home: str) -> _Running:
    output = os.path.join(home, "output")
    command = [sys.executable, "-m", "lastwords", "--home", home, "run", "--quiet", "--", *words]
    environment = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    with open(output, "wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**environment, VARIABLE: "1"},
            preexec_fn=_die_with_us,  # noqa: PLW1509  # one call of libc, and no thread of ours holds a lock
        )
    return _Running(process, home, output)


def _watch(running: _Running, sampler: Sampler, dose: Dose) -> str:
    """Until it has done enough, has taken too long, or has ended."""
    while running.seconds < dose.seconds:
        status = _wait(running.process, GLANCE)
        if status is not None:
            return f"signal {-status}" if status < 0 else f"exit code {status}"
        sampler.look()
        if sampler.has_done(dose.batches):
            return "stopped"
    return "too slow"


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """`lastwords run` passes signals on to its command, and ends with it."""
    for number, patience in POLITE_SECONDS.items():
        if process.poll() is not None:
            return
        process.send_signal(number)
        if _wait(process, patience) is not None:
            return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_orphans(before: set[int]) -> int:
    """Processes that the job left behind are ours now: we are their reaper."""
    orphans = _children() - before
    waiting = orphans
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        for pid in waiting:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + patience
        while waiting and time.monotonic() < until:
            waiting = {pid for pid in waiting if not _is_reaped(pid)}
            # An orphan's own children come to us when it ends.
            late = _children() - before - orphans
            for pid in late:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            orphans, waiting = orphans | late, waiting | late
            if waiting:
                time.sleep(GLANCE)
    return len(orphans)


def _children() -> set[int]:
    return set(sampling.children_of(os.getpid()))


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _segments() -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir("/dev/shm"))  # noqa: S108  # read
    return set()


def _remove_segments(pids: set[int], before: set[str]) -> None:
    """Shared memory of workers that we had to kill: torch names it by the worker's pid."""
    for name in _segments() - before:
        owner = _OWN_SEGMENT.match(name)
        if owner and int(owner[1]) in pids:
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/{name}")  # noqa: S108  # it was this trial's own


def _memory_kills() -> dict[str, int]:
    """Of the groups around us, which are the job's own: a trial that dies young leaves no peak to judge by."""
    return {group: count for group, _, count in _native.oom_kills(os.getpid())}


def _most_new(before: dict[str, int], after: dict[str, int]) -> int:
    """The same kill counts in a group and, in version 2, in all groups around it."""
    return max((count - before.get(group, count) for group, count in after.items()), default=0)


def _told(
    words: Sequence[str], running: _Running, sampler: Sampler, ended: str, left: int, memory_kills: int
) -> Trial:
    is_by_itself = ended.startswith(("exit", "signal"))
    said = _last_lines(running.output)
    if ended in ("exit code 126", "exit code 127") and not sampler.pids and said:
        raise JobRefused(said[-1].removeprefix("lastwords: "))
    is_failure = is_by_itself and ended != "exit code 0"
    return sampler.trial(
        command=tuple(words),
        seconds=round(running.seconds, 3),
        ended=ended,
        is_failure=is_failure,
        said=_of_the_job(said) if is_failure or ended == "too slow" else (),
        memory_kills=memory_kills,
        left_running=left,
        deaths=_deaths(running.home),
    )


def _deaths(home: str) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(os.path.join(home, "deaths")))
    return 0


def _last_lines(path: str) -> list[str]:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 8192))
        return file.read().decode("utf-8", "replace").splitlines()


def _of_the_job(lines: Sequence[str]) -> tuple[str, ...]:
    """Without ours, which name a place that is gone."""
    return tuple(line for line in lines if line.strip() and not line.startswith("lastwords: "))[-MOST_SAID:]
