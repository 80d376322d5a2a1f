"""Who tells how a process ended, and what is said where nobody can: on this kernel, and on lesser ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench._mortals import WAITERS, WAYS
from lastwords import _native
from lastwords.evidence import Evidence
from lastwords.evidence.store import Store
from lastwords.watch.processes import Process
from lastwords.watch.witnesses import FORCE, Witnesses, kernel_tells_exits
from tests.watch.running import PATIENCE, clean_environment, python, run_words
from tests.watch.test_many_deaths import die

ROOT = Path(__file__).resolve().parent.parent.parent


def has_connector() -> bool:
    try:
        _native.ProcConnector()
    except OSError:
        return False
    return True


needs_connector = pytest.mark.skipif(not has_connector(), reason="needs root and the first PID namespace")


@pytest.mark.root
@needs_connector
def test_the_proc_connector_tells_of_reaped_processes() -> None:
    witnesses = Witnesses("connector")
    for number, expected in ((None, 3 << 8), (signal.SIGKILL, signal.SIGKILL)):
        child = subprocess.Popen(python("input()\nraise SystemExit(3)"), stdin=subprocess.PIPE)
        process = Process(pid=child.pid, own_pid=child.pid, pidfd=os.pidfd_open(child.pid))
        if number is not None:
            child.send_signal(number)
        child.communicate(b"\n")
        status = witnesses.of_ended(process)
        process.close()
        assert status is not None
        assert (status.raw, status.source) == (expected, "proc connector")
    assert witnesses.refused is None


@pytest.mark.root
@pytest.mark.slow
@needs_connector
def test_every_death_is_told_by_the_proc_connector(tmp_path: Path) -> None:
    """Threads of the waiting processes end all the time: their words are no ends of processes."""
    told = die(tmp_path / "home", tmp_path / "ledger", len(WAITERS) * len(WAYS), **{FORCE: "connector"})
    assert told.faults == []
    assert set(told.sources) == {"proc connector", "parent"}


def test_this_kernel_is_asked_in_the_best_way() -> None:
    witnesses = Witnesses()
    assert (witnesses.descriptor is None) == (kernel_tells_exits() or not has_connector())


KILLED = """
    import os, signal, lastwords
    pid = os.fork()
    if pid == 0:
        with lastwords.item("a", index=1):
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 9
"""


# Nobody reaps it, so it is never a zombie; and it does not pass through Python, which would note whom it kills.
UNSEEN = """
    import ctypes, os, signal, lastwords
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        with lastwords.item("a", index=1):
            ctypes.CDLL(None).kill(os.getpid(), 9)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
"""


def only_death(home: Path, words: Sequence[str], *before: str, **variables: str) -> Evidence:
    """The job itself ends well, whatever the watcher can see of it."""
    done = subprocess.run(
        [*before, *run_words(home, words)],
        cwd=ROOT,
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (found,) = Store(home).all()
    assert found.item is not None and found.item.index == 1
    return found


def lacks(found: Evidence, text: str) -> bool:
    """It is said that this is not known, and how to know it."""
    return any(text in one.what and one.how_to_collect for one in found.missing)


def test_where_nobody_can_be_asked_that_is_said(tmp_path: Path) -> None:
    found = only_death(tmp_path / "home", python(UNSEEN), **{FORCE: "none"})
    assert found.status is None
    assert lacks(found, "how the process ended (signal or exit code); LASTWORDS_WITNESS says so")


def without(*calls: str) -> list[str]:
    return [sys.executable, "-m", "tests.watch.refusing", *calls, "--"]


def test_a_kernel_without_pidfds(tmp_path: Path) -> None:
    """Nothing wakes us when such a process ends; we look now and then, and the connector knows how, if it is there."""
    found = only_death(tmp_path / "home", python(KILLED), *without("pidfd_open", "pidfd_send_signal"))
    if found.status is not None and found.status.source == "proc connector":
        assert found.status.signal == "SIGKILL"
    else:
        assert found.status is None or "black box" in found.status.source


def test_a_kernel_without_pidfds_and_without_the_connector(tmp_path: Path) -> None:
    before = without("pidfd_open", "pidfd_send_signal", "prctl")
    found = only_death(tmp_path / "home", python(UNSEEN), *before, **{FORCE: "none"})
    assert found.status is None
    assert lacks(found, "how the process ended")


unshare = shutil.which("unshare")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or unshare is None, reason="needs root and unshare(1)")
def test_inside_a_pid_namespace_of_its_own(tmp_path: Path) -> None:
    """As in a container: the kernel's log and the connector speak of other numbers than ours."""
    assert unshare is not None
    namespace = (unshare, "--pid", "--fork", "--mount-proc")
    found = only_death(tmp_path / "home", python(KILLED), *namespace)
    assert found.status is not None and found.status.signal == "SIGKILL"
    assert lacks(found, "the kernel log says about it (its process numbers are those of the host)")
    other = only_death(tmp_path / "other", python(KILLED), *namespace, **{FORCE: "connector"})
    assert other.status is not None and other.status.source != "proc connector"


setpriv = shutil.which("setpriv")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or setpriv is None, reason="needs root and setpriv(1)")
def test_without_any_capability(tmp_path: Path) -> None:
    """As an ordinary user: no root's rights, but the death is told all the same."""
    assert setpriv is not None
    powerless = (setpriv, "--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot", "--no-new-privs")
    found = only_death(tmp_path / "home", python(KILLED), *powerless)
    assert found.status is not None and found.status.signal == "SIGKILL"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or unshare is None, reason="needs root and unshare(1)")
def test_without_cgroups_in_sight(tmp_path: Path) -> None:
    """A container that hides /sys: each thing that cannot be read is one line, and nothing fails."""
    assert unshare is not None
    hide = 'mount -t tmpfs -o ro none /sys && mount -t tmpfs none /proc/pressure 2>/dev/null; exec "$@"'
    found = only_death(tmp_path / "home", python(KILLED), unshare, "--mount", "sh", "-c", hide, "sh")
    assert found.status is not None and found.status.signal == "SIGKILL"
    assert found.machine is not None and found.machine.memory_groups is None
    assert lacks(found, "the memory limit of its control group")
