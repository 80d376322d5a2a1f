"""The watcher of one Ray node, started by the node's first worker.

Workers introduce themselves by a line in the fifo `DIRECTORY/ray`; their pidfds tell when they end, and how. It goes
when no worker has been there for a while, or when the directory is gone.
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
from typing import TYPE_CHECKING, Any

from lastwords import endings, postmortem
from lastwords.engines.children import died_on_an_item, ending, examine
from lastwords.engines.contract import log
from lastwords.engines.ray import DEATHS, LONGEST, SPACE

if TYPE_CHECKING:
    from lastwords import Diagnosis

IDLE_SECONDS = 15.0
LETTERS = 1 << 16


class Node:
    def __init__(self, directory: str, letters: int) -> None:
        self._directory = directory
        self._letters = letters
        self._epoll = select.epoll()
        self._epoll.register(letters, select.EPOLLIN)
        self._workers: dict[int, tuple[dict[str, Any], postmortem.Begun]] = {}
        """By pidfd."""
        self._rest = b""

    def watch(self) -> None:
        busy = time.monotonic()
        while self._workers or (time.monotonic() < busy + IDLE_SECONDS and os.path.isdir(self._directory)):
            ready = self._epoll.poll(None if self._workers else 1.0)
            if ready:
                busy = time.monotonic()
            for descriptor, _ in ready:
                if descriptor == self._letters:
                    self._read_letters()
                else:
                    self._bury(descriptor)

    def _read_letters(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._letters, LETTERS)).split(b"\n")
        for line in lines:
            self._begin(json.loads(line))

    def _begin(self, who: dict[str, Any]) -> None:
        try:
            pidfd = os.pidfd_open(who["pid"])
        except OSError:  # gone before it was known
            return
        self._workers[pidfd] = (who, postmortem.begin(who["pid"]))
        self._epoll.register(pidfd, select.EPOLLIN)

    def _bury(self, pidfd: int) -> None:
        who, begun = self._workers.pop(pidfd)
        self._epoll.unregister(pidfd)
        status = endings.wait_status(pidfd)
        os.close(pidfd)
        try:
            if self._is_death(who["pid"], status):
                self._tell(who, examine(who["pid"], status or 0, begun))
            postmortem.forget(who["pid"])
        except Exception as error:  # one death that cannot be explained is no reason to miss the next
            log(
                f"a Ray worker died (pid {who['pid']}), and explaining it failed: {type(error).__name__}: {error}"
            )

    def _is_death(self, pid: int, status: int | None) -> bool:
        """Ray ends its idle workers itself, and is in its right."""
        if (
            status is not None
            and os.WIFSIGNALED(status)
            and os.WTERMSIG(status) not in (signal.SIGTERM, signal.SIGKILL)
        ):
            return True
        return died_on_an_item(pid)

    def _tell(self, who: dict[str, Any], diagnosis: Diagnosis) -> None:
        evidence, best, host = diagnosis.evidence, diagnosis.best, os.uname().nodename
        item = item_words(evidence)
        more = (f"on that host: lastwords show {evidence.id}",) if evidence.id else ()
        place = f"worker {who['worker']} · node {who['node']} · {who['ip']} ({host})"
        account = {
            "pid": who["pid"],
            "host": host,
            "time": evidence.time,
            "item": item or "",
            "ending": ending(diagnosis),
            "cause": best.id if best is not None else None,
            "text": postmortem.text(diagnosis, subject="Ray worker", item=item, context=(place, *more)),
        }
        self._publish(who, json.dumps(account).encode())

    def _publish(self, who: dict[str, Any], account: bytes) -> None:
        path = os.path.join(self._directory, f"{who['pid']}.account")
        with open(f"{path}.new", "wb") as file:
            file.write(account)
        os.replace(f"{path}.new", path)
        if len(account) < LONGEST:
            # Importing ray takes a second: only now, and only because somebody has died.
            client = importlib.import_module("ray._raylet").GcsClient(address=who["gcs"])
            client.internal_kv_put(DEATHS + who["worker"].encode(), account, True, SPACE)


def item_words(evidence: Any) -> str | None:
    """`task work 3fe8f757470bc048`, or `row 11 of block 1, task Map(check) 3fe8f757470bc048`"""
    item, role = evidence.item, evidence.process.role if evidence.process is not None else None
    if item is None:
        return None
    if item.index is None or item.key not in (None, str(item.index)):
        return str(item.key)
    word, _, place = (role or "").removeprefix("Ray worker, ").partition(" of ")
    return f"{word} {item.index} of {place}" if place else f"item {item.index}"


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
