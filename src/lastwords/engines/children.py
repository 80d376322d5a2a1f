"""The children of an engine's own agent: when each of them ended, and why.

An agent looks at its children every now and then; which of two deaths came first it cannot say. Here a thread waits
on their pidfds, so the order is the kernel's. It takes no status away: the agent goes on to wait for its children.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lastwords import postmortem

if TYPE_CHECKING:
    from lastwords import Diagnosis


@dataclass(slots=True)
class Child:
    pid: int
    begun: postmortem.Begun
    ended: float | None = None
    """Seconds since 1970; None: it lives, as far as we know."""
    stopped_by_agent: bool = False
    said: set[str] = field(default_factory=set)


class Children:
    def __init__(self) -> None:
        self.of: dict[int, Child] = {}
        self._epoll = select.epoll()
        self._pidfds: dict[int, int] = {}
        self._thread: threading.Thread | None = None

    def add(self, pid: int) -> Child:
        """To be called as soon as the agent knows its number."""
        child = self.of[pid] = Child(pid, postmortem.begin(pid))
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # dead and reaped already
            child.ended = time.time()
            return child
        self._pidfds[pidfd] = pid
        self._epoll.register(pidfd, select.EPOLLIN)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="lastwords", daemon=True)
            self._thread.start()
        return child

    def _watch(self) -> None:
        while True:
            for pidfd, _ in self._epoll.poll():
                child = self.of.get(self._pidfds.pop(pidfd))
                if child is not None and child.ended is None:
                    child.ended = time.time()
                self._epoll.unregister(pidfd)
                os.close(pidfd)

    def living(self, pids: Iterable[int]) -> list[int]:
        return [pid for pid in pids if pid in self.of and self.of[pid].ended is None and is_alive(pid)]

    def examine(self, pid: int, wait_status: int) -> Diagnosis:
        child = self.of.get(pid)
        return examine(pid, wait_status, child.begun if child is not None else None)


_EXAMINING = threading.Lock()


def examine(
    pid: int,
    wait_status: int | None,
    begun: postmortem.Begun | None,
    *,
    keep: bool = True,
    died: float | None = None,
) -> Diagnosis:
    """One at a time: two threads that let msgspec decode a type for the first time crash the process. (0.22, seen with
    two workers of a LocalCluster that died together, whose nannies live in the client)
    """
    with _EXAMINING:
        return postmortem.examine(pid, wait_status, begun=begun, keep=keep, died=died)


def hanging(pid: int, after: float) -> postmortem.Hanging | None:
    """None: it has got on meanwhile, or is dead."""
    with _EXAMINING:
        try:
            return postmortem.hanging(pid, after)
        except (OSError, ValueError):
            return None


def recall_hang(is_about: Callable[[Any], bool]) -> Diagnosis | None:
    """What `lastwords run` knows of a process whose evidence is about that."""
    with _EXAMINING:
        return postmortem.recall_hang(is_about)


def died_on_an_item(pid: int) -> bool:
    """Asked twice, for the same reason."""
    return any(postmortem.item_age(pid) is not None for _ in range(2))


def is_alive(pid: int) -> bool:
    """Not a zombie that waits for its parent."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def wait_for_any_end(pids: Iterable[int], seconds: float) -> None:
    """Until one of them can be waited for. A sentinel of multiprocessing is ready a moment before: its files have been
    closed, and it is not dead yet.
    """
    poll, pidfds = select.poll(), []
    try:
        for pid in pids:
            pidfds.append(os.pidfd_open(pid))
            poll.register(pidfds[-1], select.POLLIN)
        poll.poll(seconds * 1000)
    except OSError:
        pass  # no such process: one has been waited for already
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def wait_status(returncode: int) -> int:
    """What wait(2) said, from what subprocess and multiprocessing make of it."""
    return -returncode if returncode < 0 else (returncode & 0xFF) << 8


def ending(diagnosis: Diagnosis) -> str:
    """`died of SIGSEGV`, `ended with exit code 3`, for the middle of a sentence."""
    status, raised = diagnosis.evidence.status, diagnosis.evidence.exception
    if status is None:
        return "hangs" if diagnosis.evidence.hang is not None else "ended"
    if status.signal is not None:
        return f"{'was killed by' if status.signal in ('SIGKILL', 'SIGTERM') else 'died of'} {status.signal}"
    if raised is not None and raised.fatal:
        return f"died of {raised.kind.rpartition('.')[2]}"
    return f"ended with exit code {status.exit_code}"


def account(pid: int, returncode: int, subject: str, *context: str) -> str:
    """The panel of a child that has just ended, for whoever is its parent and was not told of its beginning.

    Its box is left where it is: `lastwords run` takes care of it, or `lastwords list` later. Where that shows the
    panel, too, this one is brief; and it is empty after a hang that `lastwords run` ended.
    """
    noticed, is_watched = time.time(), postmortem.is_watched()
    try:
        postmortem.keep_box(pid)  # before `lastwords run` puts it away
    except OSError:
        pass  # kept already, or gone
    if is_watched and postmortem.box_of(pid) is None:
        # On a busy machine `lastwords run` may be done with it before its parent has woken up.
        recalled = postmortem.recall(pid)
        if recalled is None:
            return ""
        diagnosis = recalled
    else:
        diagnosis = examine(pid, wait_status(returncode), None, keep=False, died=noticed)
    text = postmortem.text(
        diagnosis, subject=subject, item=item_words(diagnosis), context=context, brief=is_watched
    )
    if is_watched:
        postmortem.forget(pid)
    return text.rstrip("\n")


def item_words(diagnosis: Diagnosis) -> str | None:
    """The item's own name, or its number where it has none."""
    item = diagnosis.evidence.item
    if item is None:
        return None
    return item.key if item.key not in (None, str(item.index)) else f"item {item.index}"
