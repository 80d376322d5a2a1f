"""The command itself: started as a shell would start it, and our own end, which is its end again."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from lastwords import _native
from lastwords.watch.signals import with_default_action

NOT_FOUND = 127
NOT_EXECUTABLE = 126
# CPython ignores these for itself when it starts; the command must find them as a shell leaves them.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandRefused(Exception):
    """The command could not be started. `exit_code` is what a shell would end with."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def spawn(command: Sequence[str], environment: Mapping[bytes, bytes], mask: Iterable[int]) -> int:
    """The pid of the command. It inherits all but what is ours: descriptors, process group, terminal, directory."""
    if not command[0]:
        raise CommandRefused("'': command not found", NOT_FOUND)
    try:
        return _spawn(command, environment, mask)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            return _spawn_script(command, environment, mask)
        raise _refusal(command[0], error) from error


def _spawn(command: Sequence[str], environment: Mapping[bytes, bytes], mask: Iterable[int]) -> int:
    words = list(command)
    return os.posix_spawnp(words[0], words, environment, setsigmask=mask, setsigdef=IGNORED_BY_PYTHON)


def _spawn_script(command: Sequence[str], environment: Mapping[bytes, bytes], mask: Iterable[int]) -> int:
    """A script without a first line that names its interpreter is a shell script, as for execvp(3)."""
    import shutil

    script = shutil.which(command[0]) or command[0]
    try:
        return _spawn(["/bin/sh", script, *command[1:]], environment, mask)
    except OSError as error:
        raise _refusal(command[0], error) from error


def _refusal(name: str, error: OSError) -> CommandRefused:
    if error.errno == errno.ENOENT and "/" not in name:
        return CommandRefused(f"{name}: command not found", NOT_FOUND)
    if error.errno == errno.ENOENT and os.path.exists(name):
        return CommandRefused(f"{name}: the interpreter in its first line does not exist", NOT_FOUND)
    if error.errno == errno.ENOENT:
        return CommandRefused(f"{name}: no such file", NOT_FOUND)
    if error.errno == errno.EACCES and os.path.isdir(name):
        return CommandRefused(f"{name}: is a directory", NOT_EXECUTABLE)
    return CommandRefused(f"{name}: {(error.strerror or 'cannot be run').lower()}", NOT_EXECUTABLE)


def end_as(raw: int) -> NoReturn:
    """Ends this process as the command ended, signal for signal: a shell, or make, sees no difference."""
    _flush()
    if os.WIFSIGNALED(raw):
        number = os.WTERMSIG(raw)
        _native.leave_no_core()  # The command has left its own, if it was to.
        with_default_action(number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(raw))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A closed terminal, or none at all.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
