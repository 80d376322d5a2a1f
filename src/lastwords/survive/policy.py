"""What to do when a worker dies, and what its task's owner is told."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lastwords import Diagnosis

OnPoison = Literal["raise", "skip", "substitute"] | Callable[["WorkerDied"], Any]

NEVER_AGAIN = frozenset({"isa-mismatch", "wrong-architecture", "missing-dependency", "version-mismatch"})
"""On the same host the same thing happens again: a second try costs a worker and teaches nothing."""
NOT_ITS_FAULT = frozenset({"external-kill", "preemption", "parent-died"})
"""Somebody killed the worker, and whatever ran in it is innocent until it has died often."""
OUT_OF_MEMORY = "out-of-memory"
"""Tried again with nothing beside it: there is more for it then."""
HUNG = "hang"
MOST_INNOCENT_TRIES = 8
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Policy:
    """What to do when a worker dies, and what it may use. docs/executor.md says more of each."""

    retries: int = 1
    """How often a task that killed its worker is tried again, alone in a fresh one."""
    on_poison: OnPoison = "raise"
    """What becomes of a task that killed again: "raise" WorkerDied, "skip" (its result is None), "substitute" (its
    result is `substitute`), or a callable that is given the WorkerDied and returns the result.
    """
    timeout: float | None = None
    """Seconds that one task, the initializer or the end of a worker may take."""
    memory_limit: int | None = None
    """Bytes of its own that a worker may use."""
    recycle: int | None = None
    """Bytes by which a worker may grow from task to task before a fresh one takes its place."""
    intensity: tuple[int, float] | None = None
    """More than n deaths in so many seconds: tasks fail at once with the diagnosis, for as many seconds again."""
    quarantine: str | PathLike[str] | None = None
    """A file that poison is added to, one JSON object a line; what it holds is not run again."""
    substitute: Any = None
    """For on_poison="substitute"."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must not be negative: {self.retries}")
        if self.on_poison not in ("raise", "skip", "substitute") and not callable(self.on_poison):
            words = "on_poison is 'raise', 'skip', 'substitute' or a callable"
            raise ValueError(f"{words}, not {self.on_poison!r}")
        for name in ("timeout", "memory_limit", "recycle"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be more than 0: {value}")
        if self.intensity is not None and (len(tuple(self.intensity)) != 2 or min(self.intensity) < 0):
            raise ValueError(f"intensity is (deaths, seconds), not {self.intensity!r}")

    def tries_again(self, attempts: int, cause: str | None, *, is_innocent: bool = False) -> bool:
        """After so many deaths, the last of which had this cause (None: not known)."""
        if cause in NEVER_AGAIN:
            return False
        if is_innocent and self.retries:
            return attempts <= max(self.retries, MOST_INNOCENT_TRIES)
        return attempts <= self.retries

    def instead(self, error: WorkerDied) -> Any:
        """The result of a poison task, where `on_poison` is not "raise"."""
        if callable(self.on_poison):
            return self.on_poison(error)
        return self.substitute if self.on_poison == "substitute" else None

    def pause(self, attempts: int, *, is_innocent: bool) -> float:
        """Seconds before the next try: whoever kills from outside may not be done yet."""
        if not is_innocent:
            return 0.0
        return float(min(FIRST_PAUSE * 2 ** (attempts - 1), LONGEST_PAUSE))


class WorkerDied(BrokenProcessPool):
    """A task killed its worker, or the workers cannot be kept alive.

    `item` is the call as text (None: no task ran), `attempts` how often it was tried, `diagnosis` why it died (None:
    not explained).
    """

    def __init__(
        self, message: str, *, diagnosis: Diagnosis | None = None, item: str | None = None, attempts: int = 0
    ) -> None:
        super().__init__(message)
        self.diagnosis = diagnosis
        self.item = item
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, ...]:
        details = {"diagnosis": self.diagnosis, "item": self.item, "attempts": self.attempts}
        return _restored, (str(self), details)


def _restored(message: str, details: dict[str, Any]) -> WorkerDied:
    return WorkerDied(message, **details)


def initializer_failed(refusal: BaseException) -> WorkerDied:
    error = WorkerDied(f"the initializer of a worker raised {type(refusal).__name__}: {refusal}")
    error.__cause__ = refusal
    return error
