"""A thread that explains what has happened, so that watching never waits for it.

The first explanation loads half a second of modules, each takes some 40 ms, and a job that breaks loses its workers in
quick succession: whoever looks at them only then has missed their last memory, and the order in which they died.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable

SWITCH_INTERVAL = 0.0005
"""Seconds. Watching is many short calls, and after each it has to get the interpreter back from whoever explains: with
Python's own 5 ms that took a tenth of a second for one new process."""

Work = Callable[[], object]


class Explaining:
    def __init__(self) -> None:
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable when there is something to `settle`."""
        self._work: queue.SimpleQueue[tuple[Work, Work]] = queue.SimpleQueue()
        self._settled: deque[Work] = deque()
        self._thread: threading.Thread | None = None
        self._open = 0

    def put(self, work: Work, then: Work = lambda: None) -> None:
        """Does `work` in the thread, one after another, and `then` in the caller's next `settle`."""
        self._open += 1
        if self._is_started():
            self._work.put((work, then))
        else:
            self._do(work, then)

    def settle(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        while self._settled:
            self._open -= 1
            self._settled.popleft()()

    def finish(self) -> None:
        """Waits for all that was put, also for what comes of it."""
        while self._open:
            os.set_blocking(self.bell, True)
            os.eventfd_read(self.bell)
            os.set_blocking(self.bell, False)
            self.settle()

    def close(self) -> None:
        os.close(self.bell)

    def _is_started(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="lastwords-explainer", daemon=True)
            try:
                thread.start()
            except (
                RuntimeError
            ):  # No thread to be had (pids.max, RLIMIT_NPROC): then it takes as long as it takes.
                return False
            sys.setswitchinterval(SWITCH_INTERVAL)
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            self._do(*self._work.get())

    def _do(self, work: Work, then: Work) -> None:
        # Whatever fails in there has said so itself; the next death must be explained all the same.
        with contextlib.suppress(Exception):
            work()
        self._settled.append(then)
        os.eventfd_write(self.bell, 1)
