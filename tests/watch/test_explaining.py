"""Explaining goes on beside watching: in order, in a thread of its own, and whatever fails in it."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords.evidence.store import Store
from lastwords.watch.explaining import Explaining
from tests.watch.running import python, run


@pytest.fixture
def explaining() -> Iterator[Explaining]:
    made = Explaining()
    yield made
    made.finish()
    made.close()


def test_work_is_done_in_order_elsewhere_and_settled_here(explaining: Explaining) -> None:
    done: list[tuple[str, str]] = []

    def note(word: str) -> None:
        done.append((word, threading.current_thread().name))

    for number in range(3):
        explaining.put(lambda number=number: note(f"work {number}"), lambda: note("then"))  # type: ignore[misc]
    explaining.finish()
    works = [word for word, thread in done if thread == "lastwords-explainer"]
    assert works == ["work 0", "work 1", "work 2"]
    assert [word for word, thread in done if thread == threading.current_thread().name] == ["then"] * 3


def test_the_caller_never_waits_and_is_rung_for(explaining: Explaining) -> None:
    go, settled = threading.Event(), []
    explaining.put(go.wait, lambda: settled.append(1))
    explaining.settle()
    assert settled == []
    go.set()
    poll = select.poll()
    poll.register(explaining.bell, select.POLLIN)
    assert poll.poll(30_000)
    explaining.settle()
    assert settled == [1]


def test_work_that_fails_does_not_stop_the_next(explaining: Explaining) -> None:
    settled: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    explaining.put(fail, lambda: settled.append(1))
    explaining.put(lambda: None, lambda: settled.append(2))
    explaining.finish()
    assert settled == [1, 2]


def test_without_a_thread_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch, explaining: Explaining) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    explaining.put(lambda: done.append(1), lambda: done.append(2))
    assert done == [1]
    explaining.finish()
    assert done == [1, 2]


WATCHDOG = """
    import os, signal, lastwords
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        with lastwords.item("a", index=1):
            os.write(writes, b".")
            signal.pause()
    def bark():
        os.kill(pid, signal.SIGABRT)
    os.read(reads, 1)
    bark()
    os.waitpid(pid, 0)
"""


def test_who_sent_a_signal_and_from_where(tmp_path: Path) -> None:
    run(tmp_path, python(WATCHDOG))
    (found,) = Store(tmp_path).all()
    (sent,) = found.sent_signals or ()
    assert sent.signal == "SIGABRT" and sent.where is not None
    assert sent.where.startswith("<string>:") and sent.where.endswith(" bark")
