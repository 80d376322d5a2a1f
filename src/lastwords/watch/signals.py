"""Signals that reach `run` itself: which of them the command has already had, and which it must be sent.

`run` shares the command's process group and terminal. What the terminal sends (Ctrl-C) reaches both, and sent on
it would count double: many programs take a second Ctrl-C as "at once". What somebody sends to `run` alone (`kill
PID`, `docker stop`, a scheduler) was meant for the command. The kernel says which it was.

One case cannot be told: a signal that another process sends to the whole group (`kill %1` in a shell) looks like
one for us alone. The command then gets it twice, which only a handler that counts can notice; not sending it on
would lose the other, much more frequent kind.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from lastwords import _native
from lastwords.watch.proc import parent_of

# struct signalfd_siginfo: signo, errno, code, pid, and 112 bytes that nobody needs here.
SIGINFO = struct.Struct("=IiiI112x")
FROM_KERNEL = 0x80  # SI_KERNEL
TERMINAL = frozenset(
    {
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGWINCH,
    }
)
# Timers live through exec: `perl -e 'alarm 60; exec @ARGV' COMMAND` is an old way to limit a command's time.
TIMERS = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})
DEEPEST_JOB = 64


class Meaning(Enum):
    CHILD = "a child ended or stopped"
    CONTINUE = "we were stopped and go on"
    TERMINAL = "the terminal told the whole group"
    FORWARD = "meant for the command"
    NOTHING = "not for the command"


@dataclass(frozen=True, slots=True)
class Incoming:
    number: int
    code: int
    sender: int


class Inbox:
    """All signals are blocked and read here instead; `previous_mask` is what the command gets."""

    def __init__(self) -> None:
        self.previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # Inherited as ignored, it would let children vanish with their status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.descriptor = _native.signal_descriptor(sorted(signal.valid_signals()))

    def read(self) -> Iterator[Incoming]:
        while True:
            try:
                raw = os.read(self.descriptor, 32 * SIGINFO.size)
            except BlockingIOError:
                return
            for number, _, code, sender in SIGINFO.iter_unpack(raw):
                yield Incoming(number, code, sender)

    def close(self) -> None:
        os.close(self.descriptor)


def meaning(incoming: Incoming, ourselves: int) -> Meaning:
    if incoming.number == signal.SIGCHLD:
        return Meaning.CHILD
    if incoming.number == signal.SIGCONT:
        return Meaning.CONTINUE
    if incoming.code == FROM_KERNEL:
        if incoming.number in TERMINAL:
            return Meaning.TERMINAL
        return Meaning.FORWARD if incoming.number in TIMERS else Meaning.NOTHING
    # `kill 0` in the job's own shell script: the command has had it.
    return Meaning.NOTHING if is_below(incoming.sender, ourselves) else Meaning.FORWARD


def is_below(pid: int, ancestor: int) -> bool:
    """A sender outside our PID namespace (a container's host) has the pid 0, and is below nobody."""
    for _ in range(DEEPEST_JOB):
        parent = parent_of(pid) if pid > 1 else None
        if parent is None or parent == ancestor:
            return parent == ancestor
        pid = parent
    return False


def with_default_action(number: int) -> None:
    """Does to ourselves what this signal does to a program that has not heard of signals."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    _let_in({number})


def _let_in(numbers: Iterable[int]) -> None:
    """A pending signal acts in the moment in which it is let in."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
