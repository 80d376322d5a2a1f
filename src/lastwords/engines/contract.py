"""What every adapter of an engine promises to the job that it finds itself in.

1. It fails alone. Whatever goes wrong inside it, it is off from then on, with one line in the log; the engine runs
   as if it had never been there. (`guarded`)
2. It changes nothing unasked: no result, no type of an exception, no timing, no placement, no setting that the user
   has made. It adds text: notes to exceptions, lines to logs.
3. It says which versions of the engine it was tested with. With another one it warns once, and tries. (`is_tested`)
4. It loads nothing into a worker beyond the standard library, `lastwords.recording` and the engine itself.
5. What it costs is measured in bench/, against the engine without it, in the same run.

docs/engines/README.md says the same to users; tests/engines/test_contract.py holds us to it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(slots=True)
class Engine:
    """One engine, and whether its adapter is on in this process."""

    name: str
    tested: Sequence[str]
    """Versions, as far as they matter: `4.3` stands for 4.3.0 and 4.3.1."""
    is_on: bool = True
    _warned: set[str] = field(default_factory=set)

    def off(self, why: str) -> None:
        if self.is_on:
            self.is_on = False
            log(f"{self.name}: off in this process, and the job goes on without: {why}")

    def is_tested(self, version: str) -> bool:
        """Warns, once, about a version that nobody has tried."""
        if any(version == one or version.startswith(f"{one}.") for one in self.tested):
            return True
        if version not in self._warned:
            self._warned.add(version)
            log(f"{self.name} {version} is not among the tested versions ({', '.join(self.tested)}): trying")
        return False

    def guarded(self, function: Callable[..., Result]) -> Callable[..., Result | None]:
        """For what an engine calls: returns None where it fails or is off, and never raises an Exception."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Result | None:
            if not self.is_on:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:  # the first promise
                self.off(f"{function.__name__}: {type(error).__name__}: {error}")
                return None

        return call


def seconds(variable: str) -> float:
    """From the environment; 0: it is not set, or no number."""
    try:
        return max(0.0, float(os.environ.get(variable) or 0))
    except ValueError:
        return 0.0


def log(line: str) -> None:
    """To standard error, which engines keep as the worker's or the driver's log."""
    try:
        sys.stderr.write(f"lastwords: {' '.join(line.split())}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
