"""What the interpreter of a job brings along: asked in a process of its own, which may die of the answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

import msgspec

from lastwords.prevent import _ask_python

SCRIPT = _ask_python.__file__
# torch from a cold disk takes half a minute.
PATIENCE_SECONDS = 120.0


class Loader(msgspec.Struct, frozen=True):
    descriptors: int = 0
    descriptors_per_worker: float = 0.0
    worker_bytes: int = 0
    worker_threads: int = 0


class Torch(msgspec.Struct, frozen=True):
    sharing_strategy: str | None = None
    threads: int | None = None
    cuda: str | None = None
    built_for: tuple[str, ...] = ()
    loader: Loader | None = None
    loader_failed: str | None = None


class Import(msgspec.Struct, frozen=True):
    version: str = ""
    seconds: float = 0.0


class Pool(msgspec.Struct, frozen=True):
    user_api: str | None = None
    internal_api: str | None = None
    filepath: str | None = None
    num_threads: int | None = None


class Interpreter(msgspec.Struct, frozen=True):
    python: str = ""
    executable: str = ""
    start_method: str | None = None
    imports: dict[str, Import] = {}
    failed: dict[str, str] = {}
    bare_bytes: int = 0
    loaded_bytes: int = 0
    threads: int = 0
    runtimes: tuple[Pool, ...] = ()
    libraries: tuple[str, ...] = ()
    torch: Torch | None = None
    died: str | None = None
    """It did not live to answer; how it ended."""


def ask(executable: str = sys.executable, patience: float = PATIENCE_SECONDS) -> Interpreter:
    """Never raises: an interpreter that cannot answer is a finding."""
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                [executable, SCRIPT],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            return Interpreter(executable=executable, died=error.strerror or "it cannot be started")
        try:
            answer, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            _end(process)
            return Interpreter(executable=executable, died=f"no answer within {patience:.0f} s")
        said.seek(0)
        return read(answer, process.returncode, said.read(1 << 20).decode("utf-8", "replace"), executable)


def _environment() -> dict[str, str]:
    """Not recorded: this process is ours, and its death is an answer. Our own folder must not hide other modules."""
    kept = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    return {**kept, "PYTHONSAFEPATH": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """With its workers: the session is its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def read(answer: bytes, status: int, said: str, executable: str) -> Interpreter:
    """The last line is the answer; libraries may print before it."""
    lines = answer.strip().splitlines()
    try:
        found: Any = msgspec.json.decode(lines[-1]) if lines else None
        if found is not None:
            return msgspec.convert(found, Interpreter)
    except msgspec.DecodeError:
        pass
    last = said.strip().splitlines()[-1:] or [""]
    how = f"signal {-status}" if status < 0 else f"exit code {status}"
    return Interpreter(executable=executable, died=f"{how}{': ' + last[0] if last[0] else ''}")
