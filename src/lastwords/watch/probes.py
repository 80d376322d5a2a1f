"""Asking a living process where it stands: it writes `<box>.probe`, with the stacks of all its threads, and goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import dataclass

from lastwords import _native
from lastwords.watch.proc import read_text
from lastwords.watch.processes import Process
from lastwords.watch.threads import look


@dataclass(frozen=True, slots=True)
class State:
    """What has to be known of a living process before it is asked."""

    started_ns: int
    """When its item began; 0: it works on none."""
    probe_signal: int
    """0: it listens for none."""


def state_of(process: Process) -> State | None:
    try:
        record = json.loads(_native.read_box(process.box or ""))
        current = (record.get("live") or {}).get("current") or {}
        identity = record.get("identity") or {}
        is_idle = current.get("phase") == "idle"
        started = 0 if is_idle else int(current.get("started_ns") or 0)
        return State(started, int(identity.get("probe_signal") or 0))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def ask(process: Process, state: State) -> None:
    """One that ended meanwhile cannot be asked, nor one that listens for no signal."""
    if state.probe_signal and process.pidfd is not None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(process.pidfd, state.probe_signal)


def place(box: str) -> str:
    return f"{box}.probe"


def complete(box: str) -> str | None:
    """The path of the snapshot, if there is a whole one."""
    path = place(box)
    try:
        return path if json.loads(_native.read_probe(path)).get("complete") else None
    except (OSError, ValueError, AttributeError):
        return None


def is_coming(process: Process) -> bool:
    """It is writing its answer, or has not been let run since it was asked."""
    if os.path.exists(f"{process.box}.probing"):
        return True
    state = state_of(process)
    return (
        state is not None
        and _is_pending(process.pid, state.probe_signal)
        and any(thread.state == "R" for thread in look(process.pid))
    )


def _is_pending(pid: int, number: int) -> bool:
    found = read_text(f"/proc/{pid}/status").partition("ShdPnd:\t")[2].split()
    return bool(number and found and int(found[0], 16) >> (number - 1) & 1)


def forget(box: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(place(box))
