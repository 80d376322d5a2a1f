"""Items that raise, where the policy says to go on without them: found one by one, then left out or replaced.

They are looked for when a batch has raised, and at no other time. The batch is then made anew from the random numbers it
began with, so that it is the one of a run in which nobody asked for them: as after a death.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass, field
from typing import Any

from lastwords import recording
from lastwords.survive import worker

LEFT_OUT = object()
MOST_NEIGHBOURS = 16
"""That are tried in the place of an item whose own batch has no good one."""
ALWAYS_BORNE = 16
"""Items that may raise however few are good. Beyond that, more bad ones than good are no fault of theirs."""
LONGEST_WORDS = 500


class Skipped:
    """In place of a batch of which nothing is left."""


@dataclass(frozen=True)
class Raised:
    """An item that raised, for the trainer's report."""

    index: Any
    words: str
    tries: int
    substitute: Any
    """None: it was left out."""


@dataclass
class Sieve:
    dataset: Any
    is_substituting: bool
    """Else they are left out."""
    tries: int
    """Of an item in a batch that has raised, before it is given up."""
    good: int = 0
    raised: list[Raised] = field(default_factory=list)
    """Since they were last taken."""
    _bad: int = 0

    def take(self) -> list[Raised]:
        taken, self.raised = self.raised, []
        return taken

    def fates(self, items: list[Any], known: dict[int, Any]) -> dict[int, Any] | None:
        """By position, what becomes of those that raise each time: another item, or LEFT_OUT.

        None: going on would hide that the code is wrong and not the data, or nothing can take an item's place.
        """
        errors = self._errors(items, known)
        good = [item for at, item in enumerate(items) if at not in known and at not in errors]
        self._bad += len(errors)
        if self._bad > max(ALWAYS_BORNE, self.good + len(good)):
            return None
        found = {at: self._fate(items[at], good) for at in errors}
        if any(one is None for one in found.values()):
            return None
        for at, error in errors.items():
            words = f"{type(error).__name__}: {error}"[:LONGEST_WORDS]
            substitute = None if found[at] is LEFT_OUT else found[at]
            self.raised.append(Raised(items[at], words, self.tries, substitute))
        return found

    def _errors(self, items: list[Any], known: dict[int, Any]) -> dict[int, Exception]:
        assert worker.current is not None
        named = enumerate(recording.NamedIndices(items, worker.current.items))
        tried = {at: self._error(item) for at, item in named if at not in known}
        return {at: error for at, error in tried.items() if error is not None}

    def _error(self, item: Any) -> Exception | None:
        """Of its last try; None: it passes."""
        error: Exception | None = None
        for _ in range(self.tries):
            try:
                self._fetch(item)
            except Exception as raised:  # noqa: BLE001, PERF203  # whatever the user's code raises
                error = raised
            else:
                return None
        return error

    def _fetch(self, item: Any) -> None:
        if getattr(self.dataset, "__getitems__", None):
            self.dataset.__getitems__([item])
        else:
            self.dataset[item]

    def _fate(self, item: Any, good: list[Any]) -> Any:
        """None: nothing can take its place."""
        if not self.is_substituting:
            return LEFT_OUT
        if good:
            return good[0]
        return next((one for one in self._neighbours(item) if self._error(one) is None), None)

    def _neighbours(self, item: Any) -> Iterable[Any]:
        if not isinstance(item, int) or not isinstance(self.dataset, Sized):
            return ()
        size = len(self.dataset)
        return ((item + step) % size for step in range(1, min(size, MOST_NEIGHBOURS + 1)))
