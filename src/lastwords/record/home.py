"""Where lastwords keeps what it knows: one directory, its owner's alone."""

from __future__ import annotations

import contextlib
import os
import time

VARIABLE = "LASTWORDS_HOME"
MOST_RUNS = 1000
MOST_AT_ONCE = 100
"""Old runs that a new one looks at: it is a job's start that waits for this."""


def home() -> str:
    """LASTWORDS_HOME, else the XDG state directory, else ~/.local/state."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "lastwords")


def new_run_directory(home_directory: str) -> str:
    """Makes the directory in which the processes of one run keep their boxes. Raises OSError."""
    runs = os.path.join(home_directory, "runs")
    os.makedirs(runs, mode=0o700, exist_ok=True)
    _remove_oldest(runs)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    directory = os.path.join(runs, f"{stamp}-{os.getpid()}")
    os.makedirs(directory, mode=0o700)
    return directory


def _remove_oldest(runs: str) -> None:
    """A service that records itself, dies and is started again leaves a run each time, until somebody asks what has died.
    Their names begin with the time.
    """
    names = sorted(os.listdir(runs))
    for name in names[: max(0, min(len(names) - MOST_RUNS + 1, MOST_AT_ONCE))]:
        run = os.path.join(runs, name)
        with contextlib.suppress(OSError):
            files = os.listdir(run)
            owner = name.rpartition("-")[2]
            if not any(_is_there(pid) for pid in (owner, *(file.partition("-")[0] for file in files))):
                for file in files:
                    os.unlink(os.path.join(run, file))
                os.rmdir(run)


def _is_there(pid: str) -> bool:
    """Perhaps as another process that has its number now: then the run stays a little longer."""
    return pid.isdecimal() and os.path.exists(f"/proc/{pid}")
