"""`python mortal_job.py ENGINE DEATH...`: a job that loses its workers one after another, each on item 5.

ENGINE is `pool` or `dataloader`. Each death gets a pool, or a loader, of its own; the job catches what these raise,
prints it, and goes on. One start of torch serves for all.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ITEMS = 40
DEADLY = 5
LEAK = 6 << 20
HUGE = 400 << 20
PR_SET_PDEATHSIG = 1

WATCHER = os.getppid()
"""In the job itself, whose workers are forked."""

kept: list[bytearray] = []
libc = ctypes.CDLL(None)
mutex = (ctypes.c_char * 40)()
python_lock = threading.Lock()


def from_outside(name: str, pid: int | None = None) -> None:
    subprocess.Popen(["sh", "-c", f"kill -{name} {pid or os.getpid()}"])
    while True:
        signal.pause()


def sleep_for_ever() -> None:
    time.sleep(10**6)  # it stands here: sleep


def read_a_socket() -> None:
    near, _far = socket.socketpair()
    near.recv(100)  # it stands here: socket


def spin() -> None:
    while True:
        pass  # it stands here: spin


def take_the_mutex() -> None:
    libc.pthread_mutex_lock(mutex)  # it stands here: mutex


def take_the_lock() -> None:
    python_lock.acquire()  # it stands here: lock


def take_much() -> None:
    kept.append(bytearray(HUGE))  # it stands here: huge


def ask_c_plus_plus() -> None:
    """operator new(unsigned long): it throws, and nothing between C++, C and Python catches that."""
    ctypes.CDLL("libstdc++.so.6")._Znwm(ctypes.c_ulong(HUGE))  # it stands here: bad-alloc


def leak() -> None:
    kept.append(bytearray(LEAK))  # it stands here: leak
    time.sleep(0.01)


def kill_the_parent() -> None:
    """Its parent goes, and the kernel tells the worker, as it had asked."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    from_outside("KILL", os.getppid())


DEATHS: dict[str, Callable[[], object]] = {
    "kill": lambda: from_outside("KILL"),
    "term": lambda: from_outside("TERM"),
    "exit-0": lambda: os._exit(0),
    "exit-3": lambda: os._exit(3),
    "huge": take_much,
    "leak": leak,
    "rlimit": take_much,
    "bad-alloc": ask_c_plus_plus,
    "sleep": sleep_for_ever,
    "socket": read_a_socket,
    "spin": spin,
    "mutex": take_the_mutex,
    "lock": take_the_lock,
    "parent": kill_the_parent,
}
FROM_THE_FIRST = {"leak"}
ENDS_ALONE = {"kill", "term", "exit-0", "exit-3"}
workers: list[Any] = []
"""Of the loader at hand."""


class Work:
    """Item 5 dies; with a leak, every item does its part."""

    def __init__(self, death: str) -> None:
        self.death = death

    def __call__(self, item: int) -> int:
        if item == DEADLY or self.death in FROM_THE_FIRST:
            DEATHS[self.death]()
        return item

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, item: int) -> int:
        return self(item)


class Begin:
    """In each worker, before its first item."""

    def __init__(self, death: str) -> None:
        self.death = death

    def __call__(self, *_: object) -> None:
        group = os.environ.get("MORTAL_GROUP")
        if group and self.death in ("huge", "leak"):
            wait_until_sampled()
            with open(f"{group}/cgroup.procs", "w") as file:
                file.write("0")
        if self.death in ("rlimit", "bad-alloc"):
            import resource

            pages = int(Path("/proc/self/statm").read_text().split()[0])
            size = pages * os.sysconf("SC_PAGESIZE")
            resource.setrlimit(resource.RLIMIT_AS, (size + HUGE // 2, resource.RLIM_INFINITY))


def pool(death: str) -> Iterator[Any]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context, Begin(death)) as executor:
        yield from executor.map(Work(death), range(ITEMS))


def dataloader(death: str) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    loader = iter(DataLoader(Work(death), batch_size=2, num_workers=1, worker_init_fn=Begin(death)))  # type: ignore[arg-type]
    workers[:] = loader._workers  # type: ignore[attr-defined]
    yield from loader


def hold_locks() -> None:
    """From here on every fork happens while another thread holds these."""
    held = threading.Event()

    def hold() -> None:
        libc.pthread_mutex_lock(mutex)
        python_lock.acquire()
        held.set()
        threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()


def exit_codes() -> list[int | None]:
    """As their parent saw them end. torch may raise in the middle of that, once for each worker, and there is one."""
    try:
        join_all()
    except RuntimeError:
        join_all()
    return [worker.exitcode for worker in workers]


def join_all() -> None:
    for worker in workers:
        worker.join()


def lose(engine: Callable[[str], Iterator[Any]], death: str) -> None:
    words: list[str] = []
    try:
        try:
            words.append(str(sum(1 for _ in engine(death))))
        except Exception as error:  # noqa: BLE001  # whatever the engine makes of it
            words.append(described(error))
    except RuntimeError as error:  # torch raises in its SIGCHLD handler, wherever the job is by then
        words.append(described(error))
    if death in ENDS_ALONE:
        words.append(f"exit codes {exit_codes()}")
    try:
        print(death, *words, flush=True)
    except RuntimeError:
        print("", death, *words, flush=True)


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error} {error.__cause__ or ''}".replace("\n", " ")


def wait_until_sampled() -> None:
    """A worker that takes its memory before the watcher has heard of it leaves no curve."""
    own, files = f"/proc/{os.getpid()}/statm", f"/proc/{WATCHER}/fd"
    while not any(target(f"{files}/{name}") == own for name in os.listdir(files)):
        time.sleep(0.001)


def target(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:  # it was closed meanwhile
        return None


def wait_for_the_watcher() -> None:
    """It loads while the job begins. Once it samples the memory of this process, it has heard of it."""
    tasks = Path(f"/proc/{os.getppid()}/task")
    while not any("lastwords-samp" in name.read_text() for name in tasks.glob("*/comm")):
        time.sleep(0.01)


if __name__ == "__main__":
    wait_for_the_watcher()
    engine = {"pool": pool, "dataloader": dataloader}[sys.argv[1]]
    hold_locks()
    for death in sys.argv[2:]:
        if death == "rlimit":  # not caught: this one ends the job
            list(engine(death))
        lose(engine, death)
