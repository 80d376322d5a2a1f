"""Tasks that have killed and are tried again alone. What becomes of each is a fact about the death in company.

An item that passes alone and dies in company is not to blame by itself: something ran beside it, or before it in the
same worker. One that dies alone, too, needs nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lastwords.endings import PASSED

if TYPE_CHECKING:
    from lastwords.survive.deaths import Coroner, Death
    from lastwords.survive.tasks import Task

log = logging.getLogger("lastwords.survive")


class Trials:
    """Plain bookkeeping of the owner's thread. `on_passed`: called with the first death of a task that has passed."""

    def __init__(self, coroner: Coroner, on_passed: Callable[[Death], object] | None) -> None:
        self.passed = 0
        self._coroner = coroner
        self._on_passed = on_passed
        self._first: dict[Task, Death] = {}

    def begin(self, task: Task, death: Death) -> None:
        first = self._first.setdefault(task, death)
        first.tries += 1

    def died(self, death: Death, others: int) -> None:
        """Perhaps in a try. `others`: workers that had something to do when that began, here as below."""
        task = death.task
        if task is not None and task.attempts == 1:
            self.end(task)  # another of its items than the one that was tried
        death.before = self._first.get(task) if task is not None else None
        death.others_then = others if death.before is not None else None

    def lived(self, task: Task, others: int) -> None:
        """It has run alone, and its worker lives."""
        first = self._first.pop(task, None)
        if first is None:
            return
        self.passed += 1
        first.alone, first.others_then = PASSED, others
        if first.advice is not None and log.isEnabledFor(logging.INFO):
            log.info("%s", first.advice, extra={"lastwords": first.as_dict()})
        self._coroner.learn(first)
        if self._on_passed is not None:
            self._on_passed(first)

    def end(self, task: Task) -> None:
        """It is not tried any more, or is not the same any more."""
        self._first.pop(task, None)
