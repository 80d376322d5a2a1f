"""Who called `os._exit()` or `sys.exit()`: the exit code alone tells nobody.

The recorder keeps the call where it keeps exceptions, under the name of the function; no exception has such a name.
"""

from __future__ import annotations

import itertools

from lastwords.evidence import box as raw
from lastwords.evidence.model import PythonFrame, PythonStack, Status

FUNCTIONS = ("os._exit", "sys.exit")
SOURCE = "where it called {}()"
OUR_WRAPPER = "lastwords_spark_daemon.py"
"""Stands between the call and the recorder in a worker of Spark, and is not who called."""


def is_exit(raised: raw.Raised) -> bool:
    return raised.kind in FUNCTIONS


def stack(own: raw.Box, status: Status | None) -> PythonStack | None:
    """None: it ended otherwise, with another code, or nobody saw the call."""
    last = next((one for one in reversed(own.exceptions) if is_exit(one)), None)
    if last is None or status is None or status.exit_code is None or last.message != str(status.exit_code):
        return None
    calling = itertools.dropwhile(lambda one: (one.file or "").endswith(OUR_WRAPPER), last.frames)
    frames = tuple(PythonFrame(file=one.file, line=one.line, function=one.function) for one in calling)
    return PythonStack(source=SOURCE.format(last.kind), frames=frames)


def function_of(found: PythonStack | None) -> str | None:
    """`os._exit` or `sys.exit`, if it is the stack of such a call."""
    sources = {SOURCE.format(name): name for name in FUNCTIONS}
    return sources.get(found.source) if found is not None else None
