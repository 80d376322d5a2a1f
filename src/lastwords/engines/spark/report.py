"""The deaths of a job, at its end: also those that a retry on another host has hidden.

Asked of the driver's own status store, which keeps every failed task with its message: no listener is called for each
event, and none has to live in the JVM.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MOST_MILLISECONDS = 3000
MOST_TASKS = 1000
"""Of one stage. A job that has lost more Python workers than this has been told so."""
HOW_TO_LEARN_MORE = (
    "for row, line and cause: pip install lastwords, in the Python that those executors use (PYSPARK_PYTHON)"
)
_BEGINS = re.compile(r"^✗ Python worker \(pid (\d+)\) (.*?)(?: on (.*?))?$", re.MULTILINE)
_VERDICT = re.compile(r"\s+([a-z][a-z-]+) (\d+) %$")
_NEEDS = re.compile(r"^  .*  needs ([a-z0-9_ ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Death:
    """One Python worker, as the message of its task tells it."""

    host: str
    executor: str
    how: str
    """`died of SIGILL`"""
    item: str | None = None
    cause: str | None = None
    sentence: str | None = None
    lacks: str | None = None
    """The extension of the CPU that was missing there."""


def tell(context: Any) -> None:
    """Prints what was lost, once. Nothing died: nothing is said."""
    if context is None or getattr(context, "_jsc", None) is None:
        return
    say(deaths(context))


def say(found: Iterable[Death]) -> None:
    lines = [f"lastwords: {line}\n" for line in words(list(found))]
    if lines:
        sys.stderr.write("".join(lines))
        sys.stderr.flush()


def deaths(context: Any) -> Iterator[Death]:
    """Of all jobs of this SparkContext so far, or of this session of Spark Connect, in the order of their stages."""
    if not hasattr(context, "_jsc") and hasattr(context, "client"):
        from lastwords.engines.spark import connect_report

        yield from connect_report.deaths(context.client)
        return
    spark = context._jsc.sc()
    # A task's end may still be on its way to the store. A bus that does not come to rest is no reason to hold up a job.
    with contextlib.suppress(Exception):
        spark.listenerBus().waitUntilEmpty(MOST_MILLISECONDS)
    store, jvm = spark.statusStore(), context._jvm
    for stage in _failing_stages(store, jvm):
        for task in _failed_tasks(store, jvm, stage):
            message = task.errorMessage()
            found = parse(message.get(), task.host(), task.executorId()) if message.isDefined() else None
            if found is not None:
                yield found


def _failing_stages(store: Any, jvm: Any) -> list[Any]:
    empty = jvm.java.util.ArrayList()
    quantiles = _array(jvm, 0)
    stages = _list(store.stageList(empty, False, False, quantiles, empty))
    return sorted((one for one in stages if one.numFailedTasks()), key=lambda one: int(one.stageId()))


def _failed_tasks(store: Any, jvm: Any, stage: Any) -> list[Any]:
    failed = jvm.java.util.ArrayList()
    failed.add(jvm.org.apache.spark.status.api.v1.TaskStatus.FAILED)
    no_order = jvm.scala.Option.apply(None)
    tasks = store.taskList(stage.stageId(), stage.attemptId(), 0, MOST_TASKS, no_order, True, failed)
    return _list(tasks)


def _array(jvm: Any, length: int) -> Any:
    return jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Double.TYPE, length)


def _list(sequence: Any) -> list[Any]:
    """Of a Scala Seq."""
    iterator, found = sequence.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def parse(message: str, host: str, executor: str) -> Death | None:
    """From what a task's error says; None: its Python worker did not die, or nobody was there to explain it."""
    begins = message.find("✗ Python worker (pid ")
    if begins < 0:
        return None
    head, _, rest = message[begins:].partition("\n\n")
    lines = [line.strip() for line in head.split("\n")]
    verdict = next((found for line in lines if (found := _VERDICT.search(f" {line}"))), None)
    title = " ".join(_VERDICT.sub("", f" {line}").strip() for line in lines[: _end_of_title(lines)])
    found = _BEGINS.match(title.strip())
    if found is None:
        return None
    needs = _NEEDS.search(rest)
    return Death(
        host=host,
        executor=executor,
        how=found[2],
        item=found[3],
        cause=verdict[1] if verdict else None,
        sentence=" ".join(lines[_end_of_title(lines) :]) or None if verdict else None,
        lacks=needs[1] if needs else None,
    )


def _end_of_title(lines: list[str]) -> int:
    """The title ends with the line that has the verdict; a plain one has none, and is one line."""
    return next((number for number, line in enumerate(lines, 1) if _VERDICT.search(f" {line}")), 1)


def words(found: list[Death]) -> Iterator[str]:
    """For the end of a job's output."""
    if not found:
        return
    count = f"{len(found)} Python workers" if len(found) > 1 else "1 Python worker"
    yield f"{count} died in this Spark job{_where(found)}"
    for (how, cause), number in Counter((one.how, one.cause) for one in found).most_common():
        alike = [one for one in found if (one.how, one.cause) == (how, cause)]
        said = f": {alike[0].sentence}" if alike[0].sentence else ""
        yield f"  {number} × {how}{f' ({cause})' if cause else ''}{said}"
        if items := sorted({one.item for one in alike if one.item}):
            yield f"      on {_some(items)}"
    if any(one.cause is None for one in found):
        yield f"  {HOW_TO_LEARN_MORE}"


def _where(found: list[Death]) -> str:
    hosts = Counter(one.host for one in found)
    if len(hosts) > 1:
        return ": " + ", ".join(f"{count} on host {host}" for host, count in hosts.most_common())
    lacks = {one.lacks for one in found}
    lacking = f", which lacks {lacks.pop()}" if len(lacks) == 1 and None not in lacks else ""
    every = f"all {len(found)} " if len(found) > 1 else ""
    return f": {every}on host {found[0].host}{lacking}"


def _some(items: Iterable[str]) -> str:
    named = list(items)
    return "; ".join(named[:4]) + (f"; and {len(named) - 4} others" if len(named) > 4 else "")
