"""Starting to record: the native half first, then what watches Python's side of things."""

from __future__ import annotations

import atexit
import os
import sys

from lastwords import _native
from lastwords.record import after_import, dumper, endings, events, handlers, host
from lastwords.record.home import home, new_run_directory

VARIABLE = "LASTWORDS"

_RUNTIME = f"{sys.implementation.name} {sys.version.split()[0]}"
_started = False


def enable(role: str | None = None) -> bool:
    """Records this process and its children from here on; False: it could not be, and the job runs on.

    Under `lastwords run` everything is recorded already, and this only sets the role. Otherwise a new run
    begins in the home directory, and children find it through the environment.
    """
    if VARIABLE not in os.environ:
        try:
            os.environ[VARIABLE] = new_run_directory(home())
        except OSError as refused:
            _warn(f"cannot keep a record in {home()}: {refused.strerror or refused}")
            return False
        host.remember(home())
    recording = start(os.environ[VARIABLE])
    if role is not None:
        _native.describe(role=role)
    return recording


def start(directory: str, *, put_off: frozenset[str] = frozenset()) -> bool:
    """Records this process in the run's directory. Does nothing the second time. `put_off`: see `after_import`."""
    global _started
    if _started:
        return _native.is_recording()
    _started = True
    try:
        _native.start(directory)
    except OSError:
        # The run that made the directory has said so already, once for all processes.
        pass
    _native.describe(runtime=_RUNTIME)
    dumper.adopt()
    handlers.stay_in_front()
    events.watch()
    after_import.install(put_off=put_off)
    atexit.register(endings.at_exit)
    return _native.is_recording()


def _warn(text: str) -> None:
    sys.stderr.write(f"lastwords: not recording this job: {text}\n")
