"""A job whose processes die in many ways, each waited for by somebody else than the watcher.

`python -m bench._mortals LEDGER COUNT` starts one process for each kind of waiter; these share the deaths among them and
write a line into the ledger for each: what was done to whom, and how its own waiter saw it end. `bench.watch` compares.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import NoReturn

import lastwords

AT_ONCE = 4
"""Deaths under way in each of the waiting processes."""

Way = tuple[Callable[[], object], int]
"""How to die, and the end that this is: an exit code, or a signal below zero, as subprocess has it."""


def _raise() -> NoReturn:
    raise ValueError("the seventh way")


def _myself(number: int) -> Way:
    return lambda: os.kill(os.getpid(), number), -number


WAYS: dict[str, Way] = {
    "null pointer": (lambda: ctypes.string_at(0), -signal.SIGSEGV),
    "SIGKILL": _myself(signal.SIGKILL),
    "exit 0": (lambda: os._exit(0), 0),
    "abort": (os.abort, -signal.SIGABRT),
    "exit 3": (lambda: os._exit(3), 3),
    "SIGTERM": _myself(signal.SIGTERM),
    "exception": (_raise, 1),
    "SIGBUS": _myself(signal.SIGBUS),
    "SIGILL": _myself(signal.SIGILL),
    "SIGFPE": _myself(signal.SIGFPE),
}


def die(way: str, item: int) -> None:
    with lastwords.item(f"mortal-{item}", index=item):
        WAYS[way][0]()


def die_for_good(way: str, item: int) -> NoReturn:
    """For children of a bare fork(), which must not climb into the parent's code."""
    die(way, item)
    os._exit(99)


# Each starts a process that dies, waits for it in its own way, and says its pid and the end that it saw, if it can.

Waiter = Callable[[str, int], tuple[int, int | None]]


def by_multiprocessing(way: str, item: int) -> tuple[int, int | None]:
    import multiprocessing

    process = multiprocessing.get_context("fork").Process(target=die, args=(way, item))
    process.start()
    process.join()
    assert process.pid is not None
    return process.pid, process.exitcode


def by_popen(way: str, item: int) -> tuple[int, int | None]:
    words = [sys.executable, "-m", "bench._mortals", "die", way, str(item)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:
        return process.pid, process.wait()


def by_waitpid(way: str, item: int) -> tuple[int, int | None]:
    pid = os.fork()
    if pid == 0:
        die_for_good(way, item)
    return pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def by_nobody(way: str, item: int) -> tuple[int, int | None]:
    """SIGCHLD is ignored, as pyspark.daemon has it: the kernel reaps, and no waiter learns the status."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_for_good(way, item)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return pid, None
    raise AssertionError("somebody kept the status")


def by_subreaper(way: str, item: int) -> tuple[int, int | None]:
    """An orphan: its parent is gone before it dies, and whoever reaps orphans waits for it."""
    reads, writes = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            os.write(writes, f"{os.getpid()}\n".encode())
            die_for_good(way, item)
        os._exit(0)
    os.close(writes)
    os.waitpid(between, 0)
    with os.fdopen(reads) as said:
        return int(said.read()), None  # The pipe ends with the last who holds it: it is dead by then.


def by_executor(way: str, item: int) -> tuple[int, int | None]:
    """Its own thread waits for the sentinel, and the status is nobody's."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        pid = pool.submit(os.getpid).result()
        try:
            pool.submit(die, way, item).result()
        except BrokenProcessPool:
            return pid, None
    raise AssertionError("the pool did not notice")


WAITERS: dict[str, Waiter] = {
    "multiprocessing": by_multiprocessing,
    "Popen": by_popen,
    "waitpid": by_waitpid,
    "nobody": by_nobody,
    "subreaper": by_subreaper,
    "executor": by_executor,
}
# A pool hands an exception on and lives; after a bare fork() the program has to catch it, and then it is no death.
IMPOSSIBLE = {(waiter, "exception") for waiter in ("executor", "waitpid", "nobody", "subreaper")}


def deal(count: int) -> dict[str, list[tuple[str, int]]]:
    """Every way with every waiter in turn, until there are enough; for each waiter its ways and items."""
    dealt: dict[str, list[tuple[str, int]]] = {waiter: [] for waiter in WAITERS}
    pairs = [(waiter, way) for way in WAYS for waiter in WAITERS if (waiter, way) not in IMPOSSIBLE]
    for item, (waiter, way) in zip(range(count), cycle(pairs), strict=False):
        dealt[waiter].append((way, item))
    return dealt


def wait(ledger: str, waiter: str, count: int) -> None:
    if waiter == "nobody":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND)

    def one(way: str, item: int) -> None:
        pid, seen = WAITERS[waiter](way, item)
        line = {"item": item, "pid": pid, "way": way, "waiter": waiter, "end": WAYS[way][1], "seen": seen}
        os.write(descriptor, f"{json.dumps(line)}\n".encode())

    with ThreadPoolExecutor(1 if waiter == "subreaper" else AT_ONCE) as threads:
        for done in [threads.submit(one, *death) for death in deal(count)[waiter]]:
            done.result()


def main(ledger: str, count: int) -> int:
    words = [sys.executable, "-m", "bench._mortals", "wait", ledger]
    waiting = [subprocess.Popen([*words, waiter, str(count)], stdin=subprocess.DEVNULL) for waiter in WAITERS]
    failed = sum(process.wait() != 0 for process in waiting)
    print(f"done, {failed} failed", flush=True)
    sys.stdin.read()  # Whoever started us looks at the watcher while it still lives.
    return failed


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["die", way, item]:
            die(way, int(item))
        case ["wait", ledger, waiter, count]:
            wait(ledger, waiter, int(count))
        case [ledger, count]:
            sys.exit(main(ledger, int(count)))
