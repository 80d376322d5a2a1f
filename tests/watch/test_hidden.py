"""Where /proc hides processes (`hidepid=2`), as hosts with many users mount it. An ordinary user watches there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords.evidence import Evidence
from lastwords.evidence.store import Store
from tests.watch.running import PATIENCE, clean_environment, python, run_words

NOBODY = "65534"
unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or unshare is None or setpriv is None,
        reason="needs root, unshare(1) and setpriv(1)",
    ),
]


def as_an_ordinary_user_where_processes_are_hidden() -> list[str]:
    """He may read what root may, because the Python of these tests often lies in root's home; that does not show him
    anybody's processes.
    """
    reading = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
    become = f"{setpriv} --reuid={NOBODY} --regid={NOBODY} --clear-groups {reading}"
    hide = f'mount -t proc -o hidepid=2 proc /proc && exec {become} "$@"'
    return [str(unshare), "--mount", "sh", "-c", hide, "sh"]


def there(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*as_an_ordinary_user_where_processes_are_hidden(), *words],
        cwd="/",
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


CAN = """
    import os, subprocess, sys
    assert not os.path.exists("/proc/1/stat"), "processes of others are not hidden"
    subprocess.run([sys.executable, "-c", "import lastwords.commands.run"], check=True)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Not below pytest's own directory, which is root's alone."""
    can = there(python(CAN))
    if can.returncode != 0:
        pytest.skip(f"no ordinary user can do this here: {can.stderr.strip()[-200:]}")
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, int(NOBODY), int(NOBODY))
        yield Path(place) / "home"


# A process that nobody may dump, nor look at: the kernel shows it to root alone then. Its children are alike.
# The watcher takes what it hears in order: when it has a descriptor of the second, it has looked at the first.
WORKER = """
    import ctypes, os, signal, sys, lastwords
    from pathlib import Path
    PR_SET_DUMPABLE = 4
    if sys.argv[1] == "hidden":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)

    def start(work):
        (ready, begun), (go, release) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(release)
            os.write(begun, b".")
            os.read(go, 1)
            work()
            os._exit(0)
        os.read(ready, 1)
        return pid, release

    def die():
        with lastwords.item("a", index=1):
            os.kill(os.getpid(), signal.SIGKILL)

    def is_known(pid):
        try:
            infos = Path(f"/proc/{os.getppid()}/fdinfo").glob("*")
            return any(f"Pid:\\t{pid}\\n" in info.read_text() for info in infos)
        except FileNotFoundError:  # one was closed meanwhile
            return False

    worker, release = start(die)
    second, end = start(lambda: None)
    while not is_known(second):
        os.sched_yield()
    os.write(release, b".")
    assert os.WTERMSIG(os.waitpid(worker, 0)[1]) == 9
    os.write(end, b".")
    os.waitpid(second, 0)
    sys.exit(7)
"""


def death_there(home: Path, kind: str) -> Evidence:
    done = there(run_words(home, python(WORKER, kind)))
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    (found,) = Store(home).all()
    assert found.item is not None and found.item.index == 1
    assert found.status is not None and found.status.signal == "SIGKILL"
    return found


def about_hiding(found: Evidence) -> list[str]:
    return [one.how_to_collect for one in found.missing if "hidepid" in one.how_to_collect]


def test_a_worker_that_proc_hides(home: Path) -> None:
    found = death_there(home, "hidden")
    (how,) = about_hiding(found)
    assert how == "run lastwords as the user that the process runs as, or mount /proc without hidepid"
    assert found.machine is not None and found.machine.memory is not None and found.machine.memory.total


def test_one_s_own_workers_are_seen_as_everywhere(home: Path) -> None:
    found = death_there(home, "plain")
    assert about_hiding(found) == []
    assert found.machine is not None and found.machine.limits
