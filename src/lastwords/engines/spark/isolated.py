"""A child of a Spark worker, in which a function may die without taking the worker along.

Forked, not spawned: it has the function, its imports and its data at once. Batches go there and come back as Arrow
streams over two pipes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lastwords import postmortem, recording

LENGTH = struct.Struct("<q")
"""Before each message; negative: a pickled exception follows."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A batch that killed the child."""

    batch: Any
    how: str
    cause: str | None = None
    sentence: str | None = None
    explanation: str | None = None

    def why(self) -> dict[str, Any]:
        from pyspark.taskcontext import TaskContext

        context = TaskContext.get()
        return {
            "how": self.how,
            "cause": self.cause,
            "sentence": self.sentence,
            "explanation": self.explanation,
            "host": os.uname().nodename,
            "partition": context.partitionId() if context is not None else None,
        }


class _Died(Exception):
    """The child has closed its end of the pipe."""


class Child:
    def __init__(self, function: Callable[[Any], Any], schema: Any, timeout: float | None) -> None:
        self._function = function
        self._schema = schema
        self._timeout = timeout
        self._pid = 0
        self._begun: postmortem.Begun | None = None
        self._to = self._back = -1

    def close(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            postmortem.forget(self._pid)
            self._reap()

    def apply(self, batch: Any) -> Any:
        """The function's result for the batch, or Lost. Raises what the function raised."""
        if not self._pid:
            self._start()
        try:
            return self._ask(batch)
        except (_Died, BrokenPipeError):
            return self._lost(batch)
        except TimeoutError:
            os.kill(self._pid, signal.SIGKILL)
            return self._lost(batch, f"took longer than {self._timeout:g} s")

    # In the worker.

    def _start(self) -> None:
        import pandas  # noqa: ICN001, F401  # here, once, and not in every child that a bad row costs

        theirs, self._to = os.pipe()
        self._back, mine = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(self._function, self._schema, theirs, mine, close=(self._to, self._back))
        os.close(theirs)
        os.close(mine)
        self._begun = postmortem.begin(self._pid)

    def _ask(self, batch: Any) -> Any:
        import pyarrow as pa

        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        _send(self._to, _packed(batch))
        length = LENGTH.unpack(_receive(self._back, LENGTH.size, deadline))[0]
        content = _receive(self._back, abs(length), deadline)
        if length < 0:
            raise pickle.loads(content)  # noqa: S301  # from our own fork
        return pa.ipc.open_stream(content).read_next_batch()

    def _lost(self, batch: Any, how: str | None = None) -> Lost:
        """Explained only when one row is left: of the halves on the way there nobody wants to hear."""
        pid = self._pid
        status, peak = self._reap()
        lost = Lost(batch, how or _words(status))
        if batch.num_rows == 1:
            found = postmortem.examine(pid, status, begun=self._begun, peak_memory=peak, keep=False)
            lost = replace(lost, explanation=postmortem.text(found, subject="a quarantined child"))
            if how is None and found.best is not None:
                lost = replace(lost, cause=found.best.id, sentence=found.best.sentence)
        postmortem.forget(pid)
        return replace(lost, cause="hang") if how is not None else lost

    def _reap(self) -> tuple[int, int]:
        _, status, usage = os.wait4(self._pid, 0)
        os.close(self._to)
        os.close(self._back)
        self._pid = 0
        return status, usage.ru_maxrss << 10


def _words(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


# In the child.


def _serve(
    function: Callable[[Any], Any], schema: Any, source: int, target: int, close: tuple[int, ...]
) -> None:
    """Never returns: the frames above are the worker's."""
    for descriptor in close:
        os.close(descriptor)
    try:
        recording.describe("quarantined child of a Spark worker")
        number = 0
        while True:
            length = LENGTH.unpack(_receive(source, LENGTH.size, None))[0]
            recording.begin_item(f"batch {number}", number)
            number += 1
            _send(target, *_answer(function, schema, _receive(source, length, None)))
            recording.end_item()
    except (_Died, BrokenPipeError):
        os._exit(0)  # the worker is gone, or done
    except BaseException:  # the worker sees the end of the pipe, and the status
        os._exit(1)


def _answer(function: Callable[[Any], Any], schema: Any, content: bytes) -> tuple[bytes, bool]:
    import pyarrow as pa

    try:
        rows = pa.ipc.open_stream(content).read_next_batch().to_pandas()
        made = pa.RecordBatch.from_pandas(function(rows), schema=schema, preserve_index=False)
        return _packed(made), False
    except Exception as error:  # it is the job's, and goes there
        recording.record_exception(error)
        return _pickled(error), True


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)  # noqa: S301  # some pickle, and cannot be read again
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content


def _packed(batch: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


# The pipes.


def _send(descriptor: int, content: bytes, is_error: bool = False) -> None:  # noqa: FBT001, FBT002
    rest = memoryview(LENGTH.pack(-len(content) if is_error else len(content)) + content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _receive(descriptor: int, length: int, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < length:
        if deadline is not None and not _is_ready(descriptor, deadline):
            raise TimeoutError
        piece = os.read(descriptor, min(length - len(found), 1 << 20))
        if not piece:
            raise _Died
        found += piece
    return bytes(found)


def _is_ready(descriptor: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
