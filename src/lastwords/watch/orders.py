"""Who told the job to stop: signals that `lastwords run` was sent and passed on, with their senders.

A kill leaves no trace of its sender in the process that dies of it. But schedulers, container runtimes and operators
send SIGTERM to the process that they know, which is us, and the kernel says who they are. What they then send to all
(SIGKILL, when the time of grace is over) ends us, too: so each order is written down in the run's directory at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from lastwords.watch.machine import orchestrator
from lastwords.watch.proc import read_text
from lastwords.watch.signals import Incoming

FILE = "orders"
MOST = 64
LARGEST = 64 << 10
STOPPING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
WARNING = frozenset({signal.SIGUSR1, signal.SIGUSR2})
"""What schedulers are asked to send some time before (Slurm's `--signal`)."""


@dataclass(frozen=True, slots=True)
class Order:
    signal: int
    sender: int
    """0: from outside of our PID namespace, as a container's host sends it."""
    name: str | None
    """Of the sender; None: it cannot be seen."""
    time: float
    """Seconds since 1970."""
    orchestrator: Mapping[str, str]
    """Who runs this job, by the few variables that say so."""


class Orders:
    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._heard: list[Order] = []

    def hear(self, incoming: Incoming) -> None:
        if incoming.number not in STOPPING | WARNING or len(self._heard) >= MOST:
            return
        name = read_text(f"/proc/{incoming.sender}/comm").strip() if incoming.sender > 0 else ""
        order = Order(incoming.number, incoming.sender, name or None, time.time(), orchestrator(os.environ))
        self._heard.append(order)
        self._write_down(order)

    def so_far(self) -> tuple[Order, ...]:
        return tuple(self._heard)

    def _write_down(self, order: Order) -> None:
        if self._directory is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            descriptor = os.open(os.path.join(self._directory, FILE), flags, 0o600)
            try:
                os.write(descriptor, f"{json.dumps(asdict(order))}\n".encode())
            finally:
                os.close(descriptor)


def read(directory: str) -> tuple[Order, ...]:
    """Those of a run whose watcher is gone. What is no order is left out."""
    try:
        with open(os.path.join(directory, FILE), "rb") as file:
            lines = file.read(LARGEST).decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    found = (_order(line) for line in lines[:MOST])
    return tuple(one for one in found if one is not None)


def _order(line: str) -> Order | None:
    try:
        found = json.loads(line)
        name = found.get("name")
        return Order(
            int(found["signal"]),
            int(found["sender"]),
            str(name)[:64] if name is not None else None,
            float(found["time"]),
            orchestrator({str(key): str(value) for key, value in dict(found["orchestrator"]).items()}),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def stopping(orders: Sequence[Order]) -> Order | None:
    """The last one that told it to end."""
    return next((one for one in reversed(orders) if one.signal in STOPPING), None)
