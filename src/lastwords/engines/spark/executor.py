"""In an executor: what `lastwords_spark_daemon` asks of lastwords, where that is installed.

The daemon calls `begun` after each fork, `explain` in a process of its own after each death, and `end` last; the
workers, which are its forks, call `task_begins` and `task_ends`. Rows and batches are marked by worker.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from resource import struct_rusage
from typing import TYPE_CHECKING, Protocol

from lastwords import postmortem, recording
from lastwords.engines.spark import advice

if TYPE_CHECKING:
    from lastwords import Diagnosis

BEFORE = "before the first row"
MOST_LATECOMERS = 1000
HANG_AFTER, KILL_HUNG = "LASTWORDS_SPARK_HANG_AFTER", "LASTWORDS_SPARK_KILL_HUNG"


class Worker(Protocol):
    """As the daemon knows it."""

    pid: int
    begun: postmortem.Begun | None
    task: Mapping[str, int] | None
    hang: str
    seen_hanging: int | None


_place: Mapping[str, str] = {}
_began_run = False
_task: Mapping[str, int] | None = None


def begin(place: Mapping[str, str]) -> None:
    """Records the daemon, and by that every worker that it forks. `place` is host and executor, as Spark names them."""
    global _place, _began_run
    _place, _began_run = place, postmortem.run_directory() is None
    _choose_home()
    recording.enable(role="Spark daemon")


def end(pids: Iterable[int]) -> None:
    """The executor ends, and nobody is left to ask for a box: of these processes, or of all in a run that began here."""
    directory = postmortem.run_directory()
    if _began_run and directory is not None:
        _remove_run(directory)
    else:
        for pid in pids:
            postmortem.forget(pid)


def _remove_run(directory: str) -> None:
    """With the boxes of processes that nobody here knows: children of workers, and a worker that was forked a moment ago
    and has yet to make its own. Where the directory is gone, it cannot.
    """
    for _ in range(MOST_LATECOMERS):
        if _is_removed(directory):
            return


def _is_removed(directory: str) -> bool:
    """False: somebody has made another file in it meanwhile."""
    try:
        for name in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            return False
        raise
    return True


def _choose_home() -> None:
    """An executor's user may have no home directory: its working directory is then where Spark keeps its logs."""
    home = os.environ.get("LASTWORDS_HOME") or os.path.expanduser("~")
    if "LASTWORDS" not in os.environ and not os.access(home, os.W_OK) and not _can_make(home):
        os.environ["LASTWORDS_HOME"] = os.path.join(os.getcwd(), "lastwords")


def _can_make(directory: str) -> bool:
    above = os.path.dirname(os.path.abspath(directory))
    return not os.path.exists(directory) and os.access(above, os.W_OK)


def begun(pid: int) -> postmortem.Begun:
    return postmortem.begin(pid)


def forget(pid: int) -> None:
    """Its box: an executor that lives for weeks forks many workers."""
    postmortem.forget(pid)


# In a worker.


def task_begins(task: Mapping[str, int]) -> None:
    if postmortem.is_watched():
        _keep_own_box()
    global _task
    _task = task
    recording.describe(
        f"Spark stage {task['stage']}, partition {task['partition']}, attempt {task['attempt']}"
    )
    recording.begin_item(BEFORE)


def _keep_own_box() -> None:
    try:
        postmortem.keep_box(os.getpid())
    except FileExistsError:
        return  # a worker that is used again


def task_ends() -> None:
    global _task
    _task = None
    recording.end_item()
    recording.describe("Spark worker without a task")


def attempt() -> int:
    """Of this worker's task: 0 is the first."""
    return _task["attempt"] if _task is not None else 0


def where_it_is() -> str | None:
    """Said in the worker itself, for an exception that it can still hand over."""
    current = recording.current_item()
    if _task is None or current is None:
        return None
    return " · ".join((item_words(*current, _task), *place_words(_task, _place)))


# After a death.


def explain(worker: Worker, status: int, usage: struct_rusage) -> str:
    diagnosis = postmortem.examine(worker.pid, status, begun=worker.begun, peak_memory=usage.ru_maxrss << 10)
    text = _panel(diagnosis, worker.task)
    postmortem.forget(worker.pid)
    return text


def _panel(diagnosis: Diagnosis, task: Mapping[str, int] | None) -> str:
    item, death = diagnosis.evidence.item, diagnosis.evidence.id
    key, index = (item.key, item.index) if item is not None else (None, None)
    more = (f"on that host: lastwords show {death}",) if death else ()
    return postmortem.text(
        _without_progress(diagnosis),
        subject="Python worker",
        item=item_words(key, index, task) if task is not None else None,
        steps=advice.steps(diagnosis),
        context=(" · ".join(place_words(task, _place)), *more),
    )


def _without_progress(diagnosis: Diagnosis) -> Diagnosis:
    """A worker is used again: what it has done before belongs to other tasks."""
    import msgspec

    evidence = msgspec.structs.replace(diagnosis.evidence, progress=None)
    return msgspec.structs.replace(diagnosis, evidence=evidence)


def item_words(key: str | None, index: int | None, task: Mapping[str, int]) -> str:
    """`row 17 of stage 3, partition 1`"""
    place = f"stage {task['stage']}, partition {task['partition']}"
    if index is not None and key in (None, str(index)):
        return f"row {index} of {place}"
    return f"{place}, {key}" if key == BEFORE else f"{key} of {place}" if key else place


def place_words(task: Mapping[str, int] | None, place: Mapping[str, str]) -> tuple[str, ...]:
    attempt = (f"attempt {task['attempt']}, task {task['task']}",) if task is not None else ()
    return (*attempt, f"host {place['host']}", f"executor {place['executor']}")


# While it hangs.


def is_hanging(worker: Worker) -> bool:
    """Called in the daemon, every quarter of the time that an item may take."""
    after = float(os.environ[HANG_AFTER])
    age = postmortem.item_age(worker.pid)
    if age is None or age[0] < after or worker.seen_hanging == age[1]:
        return False
    worker.seen_hanging = age[1]
    return True


def explain_hang(worker: Worker) -> None:
    """Kills it if it was asked to: only then does the task fail, and the driver hear of it."""
    after = float(os.environ[HANG_AFTER])
    found = postmortem.hanging(worker.pid, after)
    if found is None or _waits_for_spark(found.diagnosis):
        return
    text = _panel(found.diagnosis, worker.task)
    if os.environ.get(KILL_HUNG):
        worker.hang = text
        os.kill(worker.pid, signal.SIGKILL)
    else:
        sys.stderr.write(text)
        sys.stderr.flush()


def _waits_for_spark(diagnosis: Diagnosis) -> bool:
    """It has done its rows, and the executor sends no others yet: slow, perhaps, but not this worker's fault."""
    stack = diagnosis.evidence.python_stack
    innermost = stack.frames[0].file if stack is not None and stack.frames else ""
    return innermost.endswith(("pyspark/serializers.py", "pyspark/sql/pandas/serializers.py"))
