"""Tasks and their parts that kill the worker at a chosen moment. Importable, so that spawned workers find them."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from multiprocessing import util
from typing import Any

from lastwords.survive import channel, worker


def hang() -> None:
    while True:
        time.sleep(3600)


WAYS = {
    "segfault": lambda: ctypes.string_at(0),
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit 0": lambda: os._exit(0),
    "abort": os.abort,
    "hang": hang,
}


def die(way: str) -> None:
    WAYS[way]()


def work(item: int) -> int:
    return item * 10


def die_running(way: str) -> None:
    die(way)


class DiesWhenLoaded:
    def __init__(self, way: str) -> None:
        self.way = way

    def __reduce__(self) -> tuple[Any, ...]:
        return die, (self.way,)


class DiesWhenPickled:
    def __init__(self, way: str) -> None:
        self.way = way

    def __reduce__(self) -> tuple[Any, ...]:
        die(self.way)
        return int, ()


def take(argument: object) -> object:
    return argument


def give_deadly(way: str) -> DiesWhenPickled:
    return DiesWhenPickled(way)


def die_sending(way: str) -> str:
    """Its result is a pickle already, and the next step is to publish it."""
    assert worker.current is not None
    worker.current._publish = lambda *_: die(way)  # type: ignore[method-assign]
    return "never delivered"


def die_idle(way: str) -> str:
    """As soon as the result is out and nothing runs. A thread that hangs hurts nobody: then the process is stopped."""

    def wait_and_die() -> None:
        assert worker.current is not None
        while worker.current._words[channel.RUNNING] or worker.current._is_unheard:
            time.sleep(0.001)
        if way == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        die(way)

    threading.Thread(target=wait_and_die, daemon=True).start()
    return "delivered"


def die_at_exit(way: str) -> str:
    util.Finalize(None, die, args=(way,), exitpriority=1)
    return "delivered"


def die_when_file_is_gone(path: str, way: str) -> str:
    """Kills its worker once: the file says that nobody has died of it yet."""
    if os.path.exists(path):
        os.unlink(path)
        die(way)
    return "survived"
