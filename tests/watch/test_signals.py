from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from lastwords.watch.signals import FROM_KERNEL, Incoming, Meaning, is_below, meaning

STRANGER = os.getppid()
SI_USER = 0


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        (Incoming(signal.SIGINT, FROM_KERNEL, 0), Meaning.TERMINAL),
        (Incoming(signal.SIGQUIT, FROM_KERNEL, 0), Meaning.TERMINAL),
        (Incoming(signal.SIGHUP, FROM_KERNEL, 0), Meaning.TERMINAL),
        (Incoming(signal.SIGWINCH, FROM_KERNEL, 0), Meaning.TERMINAL),
        (Incoming(signal.SIGALRM, FROM_KERNEL, 0), Meaning.FORWARD),
        (Incoming(signal.SIGXCPU, FROM_KERNEL, 0), Meaning.NOTHING),
        (Incoming(signal.SIGINT, SI_USER, STRANGER), Meaning.FORWARD),
        (Incoming(signal.SIGTERM, SI_USER, STRANGER), Meaning.FORWARD),
        (Incoming(signal.SIGTSTP, SI_USER, STRANGER), Meaning.FORWARD),
        (Incoming(signal.SIGRTMIN + 3, -1, STRANGER), Meaning.FORWARD),
        # From outside of our PID namespace: a container's host.
        (Incoming(signal.SIGTERM, SI_USER, 0), Meaning.FORWARD),
        (Incoming(signal.SIGCHLD, 1, STRANGER), Meaning.CHILD),
        (Incoming(signal.SIGCONT, SI_USER, STRANGER), Meaning.CONTINUE),
    ],
)
def test_meaning(incoming: Incoming, expected: Meaning) -> None:
    assert meaning(incoming, os.getpid()) is expected


def test_a_signal_from_the_job_itself_is_not_sent_back_to_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_below(child.pid, os.getpid())
        assert meaning(Incoming(signal.SIGTERM, SI_USER, child.pid), os.getpid()) is Meaning.NOTHING
        child.communicate(b"\n")


def test_a_dead_sender_is_below_nobody() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert not is_below(child.pid, os.getpid())
