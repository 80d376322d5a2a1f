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
from lastwords.record.items import LOAD, RUN, SEND, each_row, note_called
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
    "ItemWords",
    "KeptMemory",
    "NamedIndices",
    "Ring",
    "RunOfWorkers",
    "Stretches",
    "adapt_after_import",
    "begin",
    "begin_call",
    "begin_item",
    "columns",
    "current_item",
    "describe",
    "describe_call",
    "each_row",
    "enable",
    "end_item",
    "end_with_parent",
    "exit_status",
    "is_recording",
    "keep_own_box",
    "makes_processes",
    "memory_kills",
    "note",
    "note_called",
    "note_stop",
    "numbers",
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
ItemWords, Ring, Stretches = _native.ItemWords, _native.Ring, _native.Stretches
Claims, end_with_parent = _native.Claims, _native.end_with_parent
NamedIndices, columns, numbers = _native.NamedIndices, _native.columns, _native.numbers
"""For the batches of a DataLoader: its indices, each named; samples part by part; numbers as those of the machine."""
KeptMemory = _native.KeptMemory
"""A copy of some memory, that tells whether the memory has changed."""


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


def record_worker(
    directory: str | None, role: str, worker: int, *, makes_processes_later: bool = False
) -> bool:
    """To be called first in a worker. False: it goes on without a black box.

    `makes_processes_later`: `makes_processes` is called before it makes a `multiprocessing.Process`.
    """
    put_off = after_import.OF_PROCESSES if makes_processes_later else frozenset()
    recording = start(directory, put_off=put_off) if directory is not None else is_recording()
    _native.describe(role=role, worker=worker)
    return recording


makes_processes = after_import.catch_up
"""Does nothing the second time, and where nothing was put off."""


def adapt_after_import(library: str, adapter: str) -> None:
    """Calls `adapt` of the module `adapter` with the library: now, or when it is imported. Recorded or not."""
    after_import.install({library: adapter})


def prepare_to_fork() -> None:
    """Loads and looks up, in the parent and once, what each forked worker would when it is recorded: it starts twice as
    fast, and has less memory of its own.
    """
    _native.prepare_to_fork()
    for library, adapters in after_import.ADAPTERS.items():
        if library in sys.modules:
            for adapter in adapters.split():
                try:
                    __import__(adapter)
                except ImportError:  # noqa: PERF203  # rare, and no reason to leave out the others
                    pass  # the worker notes it in its record


_own_lock = threading.Lock()
# Another thread may hold it when we are forked, and never lets it go there. Its own function and none of ours: of each page
# that a function of Python touches, every fork of the job has a copy.
os.register_at_fork(after_in_child=_own_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  # as in threading


class RunOfWorkers:
    """Where the workers of this process keep their boxes: the run it belongs to, or one of its own."""

    _own: ClassVar[dict[int, tuple[str, int]]] = {}
    """By pid, since a forked process copies this: the directory, and how many supervisors use it."""

    def __init__(self) -> None:
        self.is_watched = False
        """`lastwords run` looks after the boxes, and explains each death on its own."""
        self.directory: str | None = os.environ.get(VARIABLE)
        self._owner: int | None = None
        if self.directory is not None:
            self.is_watched = os.path.exists(os.path.join(self.directory, "watcher"))
            return
        with _own_lock:
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
        with _own_lock:
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


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
