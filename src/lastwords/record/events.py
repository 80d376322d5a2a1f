"""What a process did shortly before its end: signals it sent, native modules it loaded, full collections.

The JVM keeps such rings for its crash reports. Each note costs less than what it notes.
"""

from __future__ import annotations

import _imp
import gc
import os
import sys

from lastwords import _native


def watch() -> None:
    # A SIGKILL tells nobody who sent it: the senders tell.
    os.kill = _native.noted_kill(os.kill)
    os.killpg = _native.noted_kill(os.killpg, of_group=True)
    os.execv = _native.noted_exec(os.execv)
    os.execve = _native.noted_exec(os.execve)
    os._exit = _native.noted_exit(os._exit, "os._exit")
    sys.exit = _native.noted_exit(sys.exit, "sys.exit")
    _imp.create_dynamic = _native.noted_import(_imp.create_dynamic)
    gc.callbacks.append(_native.note_collection)
