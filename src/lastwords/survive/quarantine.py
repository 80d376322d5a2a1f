"""The file of poison: tasks that kill whoever works on them, one JSON object a line."""

from __future__ import annotations

import json
import os
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lastwords.survive.deaths import Death
    from lastwords.survive.policy import WorkerDied

LONGEST_LINE = 1 << 16


class Quarantine:
    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = os.fspath(path) if path is not None else None

    def add(self, error: WorkerDied, death: Death) -> None:
        if self.path is not None:
            self._append(self.path, entry(error, death))

    def add_raised(self, index: Any, how: str, attempts: int) -> None:
        """An item that killed nobody, and was given up all the same."""
        if self.path is not None:
            self._append(self.path, _entry_raised(index, how, attempts))

    @staticmethod
    def _append(path: str, found: dict[str, Any]) -> None:
        """In one write: several jobs may share the file."""
        line = json.dumps(found) + "\n"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as refused:
            sys.stderr.write(f"lastwords: {path}: poison not noted: {refused.strerror}\n")

    def read(self) -> Iterator[dict[str, Any]]:
        """What was noted; a line that is no entry is skipped."""
        if self.path is None or not os.path.exists(self.path):
            return
        with open(self.path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    found = json.loads(line) if len(line) <= LONGEST_LINE else None
                except ValueError:
                    continue
                if isinstance(found, dict) and "key" in found:
                    yield found

    def known(self) -> dict[str, dict[str, Any]]:
        """By their key, those whose libraries are still the same: what has changed since may have cured it."""
        return {
            str(one["key"]): one
            for one in self.read()
            if isinstance(one.get("versions"), dict) and not _has_changed(one["versions"])
        }


def _has_changed(versions: dict[str, str]) -> bool:
    return any(_version_now(package) != version for package, version in versions.items())


@cache
def _version_now(package: str) -> str | None:
    """None: it is not installed any more."""
    from importlib import metadata

    if package == "python":
        return sys.version.split()[0]
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def refusal(noted: dict[str, Any], path: str) -> str:
    """What whoever submits it again is told."""
    return (
        f"{noted['key']} is in quarantine: it {noted.get('how')} on {noted.get('attempts')} tries"
        f" (cause: {noted.get('cause')}), and none of the libraries involved has changed since\n"
        f"delete its line from {path} to try it again; lastwords show {noted.get('death')}"
    )


def entry(error: WorkerDied, death: Death) -> dict[str, Any]:
    diagnosis = death.diagnosis
    return {
        "key": error.item,
        "index": death.task.label if death.task is not None else None,
        "cause": death.cause,
        "signature": diagnosis.signature if diagnosis is not None else None,
        "how": death.words,
        "step": death.step,
        "attempts": error.attempts,
        "alone": death.alone,
        "time": death.time,
        "death": diagnosis.evidence.id if diagnosis is not None else None,
        "versions": _versions(death),
    }


def _entry_raised(index: Any, how: str, attempts: int) -> dict[str, Any]:
    return {
        "key": str(index),
        "index": index if isinstance(index, int) else None,
        "cause": "python-exception",
        "signature": None,
        "how": how,
        "step": "running",
        "attempts": attempts,
        "alone": None,
        "time": time.time(),
        "death": None,
        "versions": _python(),
    }


def _python() -> dict[str, str]:
    return {"python": sys.version.split()[0]}


def _versions(death: Death) -> dict[str, str]:
    """Of Python, and of the packages whose code was on the dead worker's native stack: another may cure it."""
    found = _python()
    stack = death.diagnosis.evidence.native_stack if death.diagnosis is not None else None
    for frame in stack.frames if stack is not None else ():
        if frame.package is not None:
            found[frame.package] = frame.package_version or ""
    return found
