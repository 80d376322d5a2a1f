"""What an adapter may say from inside a recorded process: the public half of `lastwords.record`.

For engines, pools and other guests, in workers; and, at the end, for whoever starts workers and has them recorded.
As light as the recorder itself; nothing here raises into the job, and all that speaks of this process does nothing
in one that is not recorded. `lastwords.postmortem` is the parent's half: explaining how a worker ended.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import threading

from lastwords import _native
from lastwords.record import after_import
from lastwords.record.endings import record_exception
from lastwords.record.home import home, new_run_directory
from lastwords.record.items import LOAD, RUN, SEND, note_called
from lastwords.record.kept import keep_own_box
from lastwords.record.session import VARIABLE, enable, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

__all__ = [
    "LOAD",
    "RUN",
    "SEND",
    "Claims",
    "ItemByItem",
    "ItemWords",
    "RunOfWorkers",
    "begin",
    "begin_call",
    "begin_item",
    "current_item",
    "describe",
    "describe_call",
    "enable",
    "end_item",
    "end_with_parent",
    "exit_status",
    "is_recording",
    "keep_own_box",
    "memory_kills",
    "note",
    "note_called",
    "note_stop",
    "phase",
    "prepare_to_fork",
    "record_exception",
    "record_worker",
    "say_exit",
]

is_recording = _native.is_recording
note = _native.note
"""One line into the black box, for maintainers."""
note_stop = _native.note_stop
"""Before this process ends one of its workers in the middle of its work: the worker's pid, `memory` or `other`, and why."""
end_item = _native.end
begin, begin_call, phase = _native.begin, _native.begin_call, _native.phase
"""For hot paths: an item by its index, key and phase; by its index, phase and call; the next phase of the same."""
describe_call, say_exit = _native.describe_call, _native.say_exit
exit_status = _native.exit_status
"""How a process ended that somebody else has waited for, by its pidfd. NotImplementedError before Linux 6.15."""
ItemWords = _native.ItemWords
Claims, ItemByItem, end_with_parent = _native.Claims, _native.ItemByItem, _native.end_with_parent


def begin_item(key: str, index: int | None = None) -> None:
    """Like `with lastwords.item(...)`, where begin and end are in different places."""
    _native.begin(index, key, RUN)


def describe(role: str, worker: int | None = None) -> None:
    """What this process is to its job: `Spark stage 3 partition 1`, and its number if it has one."""
    _native.describe(role=role, worker=worker)


def current_item() -> tuple[str | None, int | None] | None:
    """Key and index of what this process works on, read back from its own box; None: nothing. Not for a hot path."""
    boxes = glob.glob(os.path.join(glob.escape(os.environ.get(VARIABLE, "")), f"{os.getpid()}-*.box"))
    try:
        current = (json.loads(_native.read_box(max(boxes))).get("live") or {}).get("current") or {}
    except (OSError, ValueError, AttributeError):
        return None
    found = current.get("key"), current.get("index")
    return None if found == (None, None) or current.get("phase") == "idle" else found


# For whoever starts workers.

MemoryKills = tuple[tuple[str, int, int], ...]
"""Control groups of a process, their version, and how often the kernel has killed for memory in each."""


def memory_kills(pid: int) -> MemoryKills:
    """To be asked while the process lives, and handed to `postmortem.examine` when it is dead."""
    return tuple(_native.oom_kills(pid))


def record_worker(directory: str | None, role: str, worker: int) -> bool:
    """To be called first in a worker. False: it goes on without a black box."""
    recording = start(directory) if directory is not None else is_recording()
    _native.describe(role=role, worker=worker)
    return recording


def prepare_to_fork() -> None:
    """Loads, in the parent and once, what each forked worker would load when it is recorded: it starts twice as fast."""
    for library, adapters in after_import.ADAPTERS.items():
        if library in sys.modules:
            for adapter in adapters.split():
                try:
                    __import__(adapter)
                except ImportError:  # noqa: PERF203  # rare, and no reason to leave out the others
                    pass  # the worker notes it in its record


class RunOfWorkers:
    """Where the workers of this process keep their boxes: the run it belongs to, or one of its own."""

    _own: ClassVar[dict[int, tuple[str, int]]] = {}
    """By pid, since a forked process copies this: the directory, and how many supervisors use it."""
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.is_watched = False
        """`lastwords run` looks after the boxes, and explains each death on its own."""
        self.directory: str | None = os.environ.get(VARIABLE)
        self._owner: int | None = None
        if self.directory is not None:
            self.is_watched = os.path.exists(os.path.join(self.directory, "watcher"))
            return
        with self._lock:
            try:
                self.directory, users = self._own.get(os.getpid()) or (new_run_directory(home()), 0)
            except OSError as refused:
                sys.stderr.write(f"lastwords: workers are not recorded: {home()}: {refused.strerror}\n")
                return
            self._owner = os.getpid()
            self._own[self._owner] = (self.directory, users + 1)

    def box_of(self, pid: int) -> str | None:
        """The newest box of that pid: numbers are used again."""
        if self.directory is None:
            return None
        try:
            names = [name for name in os.listdir(self.directory) if name.startswith(f"{pid}-")]
        except OSError:
            return None
        boxes = [name for name in names if name.endswith(".box")]
        return os.path.join(self.directory, max(boxes)) if boxes else None

    def forget(self, box: str) -> None:
        """Of a worker that ended well."""
        if not self.is_watched:
            _unlink(box)

    def close(self) -> None:
        if self._owner is None:
            return
        with self._lock:
            directory, users = self._own[self._owner]
            if users > 1:
                self._own[self._owner] = (directory, users - 1)
                return
            del self._own[self._owner]
        try:
            for name in os.listdir(directory):
                _unlink(os.path.join(directory, name))
            os.rmdir(directory)
        except OSError:
            pass  # whoever lists deaths next tidies it up


def _forget_lock_of_parent() -> None:
    """Another thread may have held it when we were forked, and never lets it go here."""
    RunOfWorkers._lock = threading.Lock()  # noqa: SLF001  # our own


os.register_at_fork(after_in_child=_forget_lock_of_parent)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
