"""Fatal Python errors and faulthandler: what CPython prints when it cannot go on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

_FATAL = re.compile(r"Fatal Python error: (?P<message>.{1,200})")
_SIGNALS = {
    "segmentation fault": "SIGSEGV",
    "bus error": "SIGBUS",
    "illegal instruction": "SIGILL",
    "floating point exception": "SIGFPE",
    "floating-point exception": "SIGFPE",
    "aborted": "SIGABRT",
}


def _fatal(excerpt: Excerpt) -> Iterator[Mention]:
    for index in excerpt.with_needle("fatal python error", 40):
        found = _FATAL.search(excerpt.lines[index].text)
        if found is None:
            continue
        message = found["message"].strip()
        # Two threads may print at once: a file's name runs into it then.
        words = message.lower().lstrip("\"' ")
        signal = next((_SIGNALS[name] for name in _SIGNALS if words.startswith(name)), None)
        if signal:
            yield mention("signal", excerpt, index, "faulthandler", {"signal": signal})
        else:
            yield mention("fatal-python", excerpt, index, "python", {"message": message})


READER = Reader(
    "python",
    (
        says("signal", "windows fatal exception", r"Windows fatal exception: access violation", signal="SIGSEGV"),
        says("signal", "windows fatal exception", r"Windows fatal exception: code 0xc000001d", signal="SIGILL"),
        says("stack-overflow", "windows fatal exception", r"Windows fatal exception: stack overflow"),
        says("fatal-python", "init_|filesystem", r"Fatal Python error: init_|failed to get the Python codec of the filesystem"),
        # On the stack in a debugger or a core, where what it printed is not beside it.
        says("fatal-python", "fatal_error|fatalerror", r"^\s{0,8}#\d{1,3} .{0,40}\b(?:_?Py_FatalError\w{0,12}|fatal_error(?:_exit)?) \((?:.{0,120}<__func__\S{0,40}> \"(?P<message>\w{1,80})\")?"),
        says("no-progress", "timeout (", r"^.{0,80}Timeout \(\d{1,3}:\d\d:\d\d(?:\.\d{1,6})?\)!", by="faulthandler"),
        says("no-progress", "+ timeout +", r"\+{4,80} Timeout \+{4,80}", by="pytest-timeout"),
        says("recursion", "recursionerror", r"RecursionError: "),
        says("collecting-garbage", "garbage-collecting"),
    ),
    _fatal,
)  # fmt: skip
