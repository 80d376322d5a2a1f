"""The watcher of one Ray node: `python -m lastwords.engines.ray_node DIRECTORY`, started by the node's first worker.

Workers introduce themselves by a line in the fifo `DIRECTORY/ray`; their pidfds tell when they end, and how. So does
that of their raylet: workers that end because their node does are not to blame. It goes when no worker has been there
for a while, or when the directory is gone.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lastwords import endings, postmortem
from lastwords.engines.children import died_on_an_item, ending, examine, hanging
from lastwords.engines.contract import log
from lastwords.engines.ray import DEATHS, HANGS, LONGEST, SPACE

if TYPE_CHECKING:
    from lastwords import Diagnosis

IDLE_SECONDS = 15.0
LETTERS = 1 << 16


@dataclass(slots=True)
class Worker:
    who: dict[str, Any]
    """As it has introduced itself."""
    begun: postmortem.Begun
    hanging_ns: int = 0
    """When the item began on which it was last seen hanging; 0: none, or it has got on."""

    @property
    def pid(self) -> int:
        return int(self.who["pid"])

    @property
    def hang_after(self) -> float:
        """Seconds; 0: it was not asked for."""
        return float(self.who["hang_after"])

    @property
    def place(self) -> str:
        who = self.who
        return f"worker {who['worker']} · node {who['node']} · {who['ip']} ({os.uname().nodename})"


@dataclass(slots=True)
class Raylet:
    pid: int
    pidfd: int
    begun: postmortem.Begun
    diagnosis: Diagnosis | None = None

    def is_dead(self) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def examined(self) -> Diagnosis:
        if self.diagnosis is None:
            self.diagnosis = examine(self.pid, endings.wait_status(self.pidfd), self.begun)
        return self.diagnosis


class Node:
    """All nodes, to be exact, that keep their boxes in one directory: tests have several on one machine."""

    def __init__(self, directory: str, letters: int) -> None:
        self._directory = directory
        self._letters = letters
        self._epoll = select.epoll()
        self._epoll.register(letters, select.EPOLLIN)
        self._workers: dict[int, Worker] = {}
        """By pidfd."""
        self._raylets: dict[str, Raylet | None] = {}
        """By node."""
        self._rest = b""
        # `lastwords run` asks those that hang itself, and two that ask are one too many.
        self._asks = not postmortem.is_watched()

    def watch(self) -> None:
        busy = time.monotonic()
        while self._workers or (time.monotonic() < busy + IDLE_SECONDS and os.path.isdir(self._directory)):
            ready = self._epoll.poll(self._next_look())
            if ready:
                busy = time.monotonic()
            for descriptor, _ in ready:
                if descriptor == self._letters:
                    self._read_letters()
                else:
                    self._bury(descriptor)
            self._look_for_hangs()

    def _next_look(self) -> float | None:
        """Seconds; None: when something happens."""
        if not self._workers:
            return 1.0
        return min((worker.hang_after / 4 for worker in self._who_may_hang()), default=None)

    def _read_letters(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._letters, LETTERS)).split(b"\n")
        for line in lines:
            self._begin(json.loads(line))

    def _begin(self, who: dict[str, Any]) -> None:
        if who["node"] not in self._raylets:
            self._raylets[who["node"]] = _raylet(who["raylet"])
        try:
            pidfd = os.pidfd_open(who["pid"])
        except OSError:  # gone before it was known
            return
        self._workers[pidfd] = Worker(who, postmortem.begin(who["pid"]))
        self._epoll.register(pidfd, select.EPOLLIN)

    # When one has ended.

    def _bury(self, pidfd: int) -> None:
        worker = self._workers.pop(pidfd)
        self._epoll.unregister(pidfd)
        try:
            status = endings.wait_status(pidfd)
            if self._is_death(worker.pid, status):
                self._tell(worker, status)
            if worker.hanging_ns:
                self._withdraw(worker)
            postmortem.forget(worker.pid)
        except Exception as error:  # one death that cannot be explained is no reason to miss the next
            log(
                f"a Ray worker died (pid {worker.pid}), and explaining it failed: {type(error).__name__}: {error}"
            )
        finally:
            os.close(pidfd)

    def _is_death(self, pid: int, status: int | None) -> bool:
        """Ray ends its idle workers itself, and is in its right."""
        if (
            status is not None
            and os.WIFSIGNALED(status)
            and os.WTERMSIG(status) not in (signal.SIGTERM, signal.SIGKILL)
        ):
            return True
        return died_on_an_item(pid)

    def _tell(self, worker: Worker, status: int | None) -> None:
        raylet = self._raylets.get(worker.who["node"])
        if raylet is not None and raylet.is_dead():
            self._tell_of_node(worker, status, raylet)
            return
        diagnosis = examine(worker.pid, status, worker.begun)
        item = item_words(diagnosis.evidence)
        text = postmortem.text(
            diagnosis, subject="Ray worker", item=item, context=(worker.place, *_more(diagnosis))
        )
        self._publish(worker, DEATHS, _account(worker, diagnosis, item, ending(diagnosis), text))

    def _tell_of_node(self, worker: Worker, status: int | None, raylet: Raylet) -> None:
        """A worker ends itself when its raylet is gone. What is to be explained is the end of that."""
        item = item_words(examine(worker.pid, status, worker.begun, keep=False).evidence)
        diagnosis = raylet.examined()
        text = postmortem.text(
            diagnosis,
            subject=f"the raylet of node {worker.who['node'][:12]}",
            context=(
                f"the node's workers end with it: this one (pid {worker.pid}) was on {item or 'no task'}",
                worker.place,
                *_more(diagnosis),
            ),
        )
        how = f"ended with its node, whose raylet {ending(diagnosis)}"
        self._publish(worker, DEATHS, _account(worker, diagnosis, item, how, text))

    # While one hangs.

    def _who_may_hang(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if self._asks and worker.hang_after]

    def _look_for_hangs(self) -> None:
        for worker in self._who_may_hang():
            self._try_to_look_at(worker)

    def _try_to_look_at(self, worker: Worker) -> None:
        try:
            self._look_at(worker)
        except Exception as error:  # it may end while it is looked at
            log(f"asking Ray worker {worker.pid} where it hangs failed: {type(error).__name__}: {error}")

    def _look_at(self, worker: Worker) -> None:
        age = postmortem.item_age(worker.pid)
        if worker.hanging_ns and (age is None or age[1] != worker.hanging_ns):
            worker.hanging_ns = 0
            self._withdraw(worker)
        if age is None or age[0] < worker.hang_after or worker.hanging_ns:
            return
        found = hanging(worker.pid, worker.hang_after)
        if found is None:
            return
        worker.hanging_ns = found.started_ns
        item = item_words(found.diagnosis.evidence)
        text = postmortem.text(
            found.diagnosis, subject="Ray worker", item=item, context=(worker.place, *_more(found.diagnosis))
        )
        self._publish(worker, HANGS, _account(worker, found.diagnosis, item, "hangs", text))

    # To whoever asks.

    def _publish(self, worker: Worker, kind: bytes, account: dict[str, Any]) -> None:
        content, path = json.dumps(account).encode(), self._path(worker, kind)
        with open(f"{path}.new", "wb") as file:
            file.write(content)
        os.replace(f"{path}.new", path)
        if len(content) < LONGEST:
            _store(worker).internal_kv_put(kind + worker.who["worker"].encode(), content, True, SPACE)

    def _withdraw(self, worker: Worker) -> None:
        """It has got on, or is dead."""
        os.unlink(self._path(worker, HANGS))
        _store(worker).internal_kv_del(HANGS + worker.who["worker"].encode(), False, SPACE)

    def _path(self, worker: Worker, kind: bytes) -> str:
        return os.path.join(
            self._directory, f"{worker.who['worker']}.{'account' if kind == DEATHS else 'hang'}"
        )


def _store(worker: Worker) -> Any:
    """The cluster's own. Importing ray takes a second: only now, and only because somebody has died or hangs."""
    return importlib.import_module("ray._raylet").GcsClient(address=worker.who["gcs"])


def _raylet(pid: int) -> Raylet | None:
    """None: whoever started that worker is no raylet, or has gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            is_raylet = file.read().strip() == "raylet"
        return Raylet(pid, os.pidfd_open(pid), postmortem.begin(pid)) if is_raylet else None
    except OSError:
        return None


def _account(worker: Worker, diagnosis: Diagnosis, item: str | None, how: str, text: str) -> dict[str, Any]:
    return {
        "worker": worker.who["worker"],
        "node": worker.who["node"],
        "pid": worker.pid,
        "host": os.uname().nodename,
        "time": diagnosis.evidence.time,
        "item": item or "",
        "ending": how,
        "cause": diagnosis.best.id if diagnosis.best is not None else None,
        "text": text,
    }


def _more(diagnosis: Diagnosis) -> tuple[str, ...]:
    death = diagnosis.evidence.id
    return (f"on that host: lastwords show {death}",) if death else ()


def item_words(evidence: Any) -> str | None:
    """`task work 3fe8f757470bc048`, or `row 11 of block 1, task Map(check) 3fe8f757470bc048`"""
    item, role = evidence.item, evidence.process.role if evidence.process is not None else None
    if item is None:
        return None
    has_name = item.key not in (None, str(item.index))
    unit, _, place = (role or "").removeprefix("Ray worker, ").partition(" of ")
    if place:
        return f"{item.key if has_name else f'{unit} {item.index}'} of {place}"
    return str(item.key) if has_name else f"item {item.index}"


def main() -> None:
    directory = sys.argv[1]
    letters = os.open(os.path.join(directory, "ray"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(letters, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # two workers began together, and the other one's watcher is here
    # What it reads of the boxes is found by this; it was started without, so as not to be recorded itself.
    os.environ["LASTWORDS"] = directory
    Node(directory, letters).watch()
