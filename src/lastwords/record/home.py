"""Where lastwords keeps what it knows: one directory, its owner's alone."""

from __future__ import annotations

import os
import time

VARIABLE = "LASTWORDS_HOME"


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
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    directory = os.path.join(runs, f"{stamp}-{os.getpid()}")
    os.makedirs(directory, mode=0o700)
    return directory
