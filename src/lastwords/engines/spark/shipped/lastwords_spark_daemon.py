"""pyspark's daemon, with its eyes open: an executor's Python workers die with an explanation.

    spark.python.daemon.module               lastwords_spark_daemon
    spark.python.worker.faulthandler.enabled true

pyspark.daemon forks the workers and ignores SIGCHLD, so nobody ever learns how one ended, and the driver shows the
same EOFException for SIGILL, SIGKILL and an exit. Here the daemon waits for its children, and keeps a copy of each
worker's socket: the executor sees the end of the stream only when the explanation lies in the file that it quotes
in the exception (spark.python.worker.faulthandler, $PYTHON_FAULTHANDLER_DIR/<pid>).

One file, beside the package and not in it: `lastwords.spark.configure` sends it to hosts that may have no lastwords.
It needs pyspark and the standard library of Python 3.8; where lastwords is there, that explains, and else this file says what it
knows and how to know more. Whatever fails in here, the daemon is pyspark's own again.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

CONTEXT, ORDERLY, HANG, PAGE = 0, 2048, 4096, 20480
"""Where in a worker's page its task stands, whether it left in order, and what was said when it hung; its size."""
PATIENCE = 60
"""Seconds that an explanation may take, until the executor is told of the death without it."""
OLD_TEXT = 8192
DEFERRED = {signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM}
"""What has to wait while a worker is forked."""

_fork, _exit = os.fork, os._exit
_signal, _accept = signal.signal, socket.socket.accept


class Worker:
    """A forked worker, as its daemon sees it."""

    def __init__(self, held: int | None) -> None:
        self.pid = 0
        self.held = held
        """A copy of its socket: the executor sees no end of the stream before this is closed, too."""
        self.page = mmap.mmap(-1, PAGE)
        """Shared with the worker: what it writes there outlives it."""
        self.begun: Any = None
        self.seen_hanging: int | None = None

    def write(self, place: int, text: str, room: int) -> None:
        content = text.encode("utf-8", "replace")[: room - 4]
        self.page[place : place + 4] = b"\0\0\0\0"  # half of a new text must not be read with an old length
        self.page[place + 4 : place + 4 + len(content)] = content
        self.page[place : place + 4] = len(content).to_bytes(4, "little")

    def read(self, place: int, room: int) -> str:
        length = min(int.from_bytes(self.page[place : place + 4], "little"), room - 4)
        return self.page[place + 4 : place + 4 + length].decode("utf-8", "replace")

    @property
    def task(self) -> Any:
        """Stage, partition, attempt and task of what it works on; None: nothing."""
        try:
            return json.loads(self.read(CONTEXT, ORDERLY - CONTEXT) or "null")
        except ValueError:
            return None

    @task.setter
    def task(self, task: dict[str, int] | None) -> None:
        self.write(CONTEXT, json.dumps(task), ORDERLY - CONTEXT)

    @property
    def hang(self) -> str:
        return self.read(HANG, PAGE - HANG)

    @hang.setter
    def hang(self, text: str) -> None:
        self.write(HANG, text, PAGE - HANG)

    def close(self) -> None:
        if self.held is not None:
            os.close(self.held)
            self.held = None


class Daemon:
    """Stands between pyspark.daemon and the four system calls by which it makes and ends workers."""

    def __init__(self, explainer: Any, reason: str) -> None:
        self.explainer = explainer
        """lastwords.engines.spark.executor; None: there is no lastwords here, for this reason."""
        self.reason = reason
        self.real_kill = os.kill
        """The recorder's, where there is one: it notes who was sent what."""
        self.workers: dict[int, Worker] = {}
        self.accepted: int | None = None
        self.asked: set[int] = set()
        """Pids that the executor wanted gone: a cancelled task, or a second attempt that came too late."""
        self.is_closing = False

    def install(self) -> None:
        daemon = self

        def accept(self: socket.socket) -> tuple[socket.socket, Any]:
            connection, address = _accept(self)
            if daemon.accepted is not None:  # of a worker that could not be forked
                os.close(daemon.accepted)
            daemon.accepted = os.dup(connection.fileno())
            return connection, address

        socket.socket.accept = accept  # type: ignore[method-assign]
        os.fork, os.kill = self.fork, self.kill
        signal.signal = self.signal  # type: ignore[assignment]
        atexit.register(self.close)
        seconds = _seconds("LASTWORDS_SPARK_HANG_AFTER")
        if seconds and self.explainer is not None:
            _signal(signal.SIGALRM, self.look_for_hangs)
            signal.setitimer(signal.ITIMER_REAL, seconds / 4, seconds / 4)

    def uninstall(self) -> None:
        os.fork, os.kill = _fork, self.real_kill
        signal.signal, socket.socket.accept = _signal, _accept  # type: ignore[method-assign]

    def close(self) -> None:
        """The executor ends. Workers leave by os._exit, and do not come here."""
        if self.explainer is not None:
            _tried(lambda: self.explainer.end([*self.workers, os.getpid()]))

    def end_at_once(self, number: int, _: Any = None) -> None:
        """Where pyspark leaves SIGTERM to the kernel, before its own handler is there and while it shuts down: it dies of
        the signal as it would have, and its boxes do not stay behind.
        """
        self.close()
        _signal(number, signal.SIG_DFL)
        self.real_kill(os.getpid(), number)

    # What pyspark.daemon calls.

    def signal(self, number: int, action: Any) -> Any:
        if number == signal.SIGCHLD and action == signal.SIG_IGN:
            return _signal(number, self.reap)
        if number == signal.SIGTERM and action == signal.SIG_DFL:
            return _signal(number, self.end_at_once)
        return _signal(number, action)

    def kill(self, pid: int, number: int) -> None:
        if pid in self.workers:
            self.asked.add(pid)
        elif pid == 0:
            self.is_closing = True  # it tells all of its group to go, and goes itself
        self.real_kill(pid, number)

    def fork(self) -> int:
        # A worker may be dead before we have noted that it exists, and so may the daemon.
        signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
        try:
            worker = Worker(self.accepted)
            pid = _fork()
            if pid == 0:
                self._become(worker)
            else:
                self.accepted = None
                worker.pid = pid
                self.workers[pid] = worker
                if self.explainer is not None:
                    worker.begun = _tried(self.explainer.begun, pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, DEFERRED)
        return pid

    # In the worker.

    def _become(self, worker: Worker) -> None:
        self.uninstall()
        _signal(signal.SIGALRM, signal.SIG_DFL)
        for held in (worker, *self.workers.values()):
            held.close()
        _tried(_watch_tasks, worker, self.explainer)
        os._exit = _noting_order(worker, self.explainer)  # type: ignore[assignment]

    # When a worker has ended.

    def reap(self, *_: Any) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self.workers.get(pid)
            if worker is not None and self._is_death(worker, status):
                self._bury(worker, status, usage)
            elif self.explainer is not None:
                _tried(self.explainer.forget, pid)
            if worker is not None:
                worker.close()
                # Last: SIGTERM can end the daemon on any line, and what it does not know it leaves behind.
                del self.workers[pid]

    def _is_death(self, worker: Worker, status: int) -> bool:
        was_asked = worker.pid in self.asked
        self.asked.discard(worker.pid)
        if self.is_closing or worker.page[ORDERLY]:
            return False
        if was_asked and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return False
        return worker.task is not None or os.WIFSIGNALED(status)

    def _bury(self, worker: Worker, status: int, usage: Any) -> None:
        """In a process of its own, which takes the held socket along: whatever happens to it, that is closed."""
        try:
            pid = _fork()
        except OSError:
            pid = None
        if pid:
            return
        if pid is None:
            _say(worker, _plain(worker, status, usage, "No process could be started to explain it."))
            return
        self._leave_others_alone(worker)
        try:
            _say(worker, self._explanation(worker, status, usage))
        finally:
            _exit(0)

    def _leave_others_alone(self, worker: Worker) -> None:
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            _signal(number, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        self.uninstall()
        for other in self.workers.values():
            if other is not worker:
                other.close()

    def _explanation(self, worker: Worker, status: int, usage: Any) -> str:
        if self.explainer is None:
            return _plain(worker, status, usage, self.reason)
        if worker.hang:  # explained while it lived, and killed for it
            _tried(self.explainer.forget, worker.pid)
            return worker.hang
        try:
            return str(self.explainer.explain(worker, status, usage))
        except Exception as error:
            failed = f"lastwords could not explain it: {type(error).__name__}: {error}"
            return _plain(worker, status, usage, failed)

    # When a worker does not get on.

    def look_for_hangs(self, *_: Any) -> None:
        for worker in list(self.workers.values()):
            if worker.task is not None and _tried(self.explainer.is_hanging, worker):
                self._explain_hang(worker)

    def _explain_hang(self, worker: Worker) -> None:
        try:
            pid = _fork()
        except OSError:
            return
        if pid:
            return
        self._leave_others_alone(worker)
        try:
            worker.close()
            self.explainer.explain_hang(worker)
        except Exception as error:
            _log(f"a worker hangs (pid {worker.pid}), and explaining it failed: {error}")
        finally:
            _exit(0)


def _watch_tasks(worker: Worker, explainer: Any) -> None:
    """Notes each task when its context is known, before its function is unpickled."""
    from pyspark import worker_util
    from pyspark.taskcontext import TaskContext

    def begins(context: Any) -> None:
        worker.task = _described(context)
        if explainer is not None:
            _tried(explainer.task_begins, worker.task)

    clear = TaskContext._setTaskContext.__func__

    def _setTaskContext(cls: Any, context: Any) -> Any:  # noqa: N802
        if context is None:
            worker.task = None
            if explainer is not None:
                _tried(explainer.task_ends)
        return clear(cls, context)

    TaskContext._setTaskContext = classmethod(_setTaskContext)
    if hasattr(worker_util, "setup_broadcasts"):
        _call_before(worker_util, "setup_broadcasts", lambda: begins(TaskContext.get()))
    else:
        _notice_last_attribute(TaskContext, begins)


def _call_before(module: Any, name: str, note: Callable[[], None]) -> None:
    """Spark 4: a worker sets up its broadcasts right after the task's context."""
    function = getattr(module, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        _tried(note)
        return function(*args, **kwargs)

    setattr(module, name, noted)


def _notice_last_attribute(context_class: Any, begins: Callable[[Any], None]) -> None:
    """Spark 3.5: a worker fills the context attribute by attribute, and its local properties come last."""

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        object.__setattr__(self, name, value)
        if name == "_localProperties" and value is not None:
            _tried(begins, self)

    context_class.__setattr__ = __setattr__


def _described(context: Any) -> dict[str, int]:
    return {
        "stage": context.stageId(),
        "partition": context.partitionId(),
        "attempt": context.attemptNumber(),
        "task": context.taskAttemptId(),
    }


def _noting_order(worker: Worker, explainer: Any) -> Callable[[int], NoReturn]:
    """pyspark.daemon ends a worker by os._exit, and so may anybody: who called tells which it is."""

    def leave(code: int) -> NoReturn:
        if sys._getframe(1).f_code.co_filename.endswith(os.path.join("pyspark", "daemon.py")):
            worker.page[ORDERLY] = 1
            if explainer is not None:
                _tried(explainer.task_ends)
        _exit(code)

    return leave


def where() -> dict[str, str]:
    """Host and executor as Spark names them: the executor's own command line has both."""
    words = _executor_command()
    known = dict(zip(words, words[1:]))  # noqa: B905, RUF007  # Python 3.8
    return {
        "host": known.get("--hostname") or socket.gethostname(),
        "executor": known.get("--executor-id") or "driver",
    }


def _executor_command() -> list[str]:
    pid = os.getppid()
    for _ in range(4):  # a wrapper script as spark.pyspark.python may stand between us
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                words = file.read().split("\0")
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return []
        if "--executor-id" in words:
            return words
    return []


def _plain(worker: Worker, status: int, usage: Any, reason: str) -> str:
    """What this file knows by itself."""
    if os.WIFSIGNALED(status):
        how = f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        how = f"ended with exit code {os.WEXITSTATUS(status)}"
    place, task = where(), worker.task
    item = " in stage {stage}, partition {partition}, attempt {attempt}".format(**task) if task else ""
    return (
        f"✗ Python worker (pid {worker.pid}) {how}{item}\n"
        f"  host {place['host']} · executor {place['executor']} · its memory was {usage.ru_maxrss >> 10} MiB\n"
        f"  {reason}\n"
        f"  For the row, the function, the line and the cause:  pip install lastwords   (on that host)\n"
    )


def _say(worker: Worker, text: str) -> None:
    """Into the file that the executor quotes, above what was in it; to the executor's log where it quotes none."""
    directory = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    if not directory or not os.path.isdir(directory):
        sys.stderr.write(text)
        sys.stderr.flush()
        return
    path = os.path.join(directory, str(worker.pid))
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            old = file.read(OLD_TEXT)
    except OSError:
        old = ""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("\n" + text + ("\n" + old if old else ""))
    os.replace(path + ".new", path)


def _seconds(name: str) -> float:
    try:
        return max(0.0, float(os.environ.get(name) or 0))
    except ValueError:
        return 0.0


def _tried(function: Callable[..., Any], *args: Any) -> Any:
    """A failure of ours is one line in the executor's log, and nothing more."""
    try:
        return function(*args)
    except Exception as error:
        _log(f"{getattr(function, '__name__', function)} failed: {type(error).__name__}: {error}")
        return None


def _log(text: str) -> None:
    try:
        stamp = time.strftime("%H:%M:%S")
        sys.stderr.write(f"{stamp} lastwords: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def _explainer() -> tuple[Any, str]:
    try:
        from lastwords.engines.spark import executor

        executor.begin(where())
    except ModuleNotFoundError as error:
        if error.name != "lastwords":
            return None, f"lastwords is on that host, and lacks the module {error.name}."
        return None, "That host has no lastwords."
    except Exception as error:
        return None, f"lastwords is off on that host: {type(error).__name__}: {error}"
    return executor, ""


def _begin() -> None:
    """An executor that stops again at once ends its daemon while that is still starting."""
    signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    daemon = Daemon(*_explainer())
    try:
        daemon.install()
        _signal(signal.SIGTERM, daemon.end_at_once)
    except Exception as error:
        daemon.uninstall()
        _log(f"off in this executor: {type(error).__name__}: {error}")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DEFERRED)


def main() -> None:
    _begin()
    runpy.run_module("pyspark.daemon", run_name="__main__")


if __name__ == "__main__":
    main()
