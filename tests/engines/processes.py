"""Ending what a test has started, with all that it started itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path


def end_group(process: subprocess.Popen[bytes], patience: float) -> None:
    """Of one that leads its own session: asked first, and after so many seconds no longer asked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def left_over(mark: str) -> list[int]:
    """Processes of a cluster, by the place that they all have in their command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found
