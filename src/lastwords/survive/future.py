"""A Future that costs a fifth of the standard one while nobody waits for it.

`concurrent.futures.Future` makes a condition, a lock and three lists for each call, and takes the lock four times. Here
they are made by the first who waits, asks for a callback, or cancels; who comes later finds the state already there.

Why no wake-up is lost, and none comes twice: whoever waits puts a condition into the future, whoever finishes puts a mark
into the same place, each by one `dict.setdefault`, which the first of them wins. If a condition is there, the state changes
under its lock, as `wait` and `as_completed` take for granted. If the mark is there, nobody is told, and whoever comes later
finds the state changed. Running and cancelling are decided in the same way.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures._base import (  # the states that `wait` and `as_completed` look at
    CANCELLED,
    CANCELLED_AND_NOTIFIED,
    FINISHED,
    PENDING,
    RUNNING,
)
from typing import Any, TypeVar

T = TypeVar("T")
UNHEARD = object()
"""In the place of a condition: finished, and nobody had asked."""


class LightFuture(Future[T]):
    _state = PENDING
    _result: T | None = None
    _exception: BaseException | None = None

    def __init__(self) -> None:
        """Nothing that `Future.__init__` makes is needed yet."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        found = self.__dict__.get("condition")
        if found is None:
            found = self.__dict__.setdefault("condition", threading.Condition())
        return self._late_condition() if found is UNHEARD else found

    def _late_condition(self) -> threading.Condition:
        """For those who want one although there is nothing to wait for."""
        while self._state != FINISHED:
            time.sleep(0)  # that is its finisher's next step
        return self.__dict__.setdefault("late condition", threading.Condition())  # type: ignore[no-any-return]

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self.__dict__.setdefault("waiters", [])  # type: ignore[no-any-return]

    @property
    def _done_callbacks(self) -> list[Any]:
        return self.__dict__.setdefault("callbacks", [])  # type: ignore[no-any-return]

    def result(self, timeout: float | None = None) -> T:
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]  # T may be None
        return super().result(timeout)

    def done(self) -> bool:
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)

    def cancel(self) -> bool:
        if self.__dict__.setdefault("fate", CANCELLED) is RUNNING:
            return False
        return super().cancel()

    def set_running_or_notify_cancel(self) -> bool:
        """Called by the supervisor alone, and once."""
        if self.__dict__.setdefault("fate", RUNNING) is RUNNING:
            self._state = RUNNING
            return True
        with self._condition:
            self._state = CANCELLED_AND_NOTIFIED
            for waiter in self._waiters:
                waiter.add_cancelled(self)
        return False

    def set_result(self, result: T) -> None:
        self._result = result
        self._finish()

    def set_exception(self, exception: BaseException | None) -> None:
        self._exception = exception
        self._finish()

    def _finish(self) -> None:
        condition = self.__dict__.setdefault("condition", UNHEARD)
        if condition is UNHEARD:
            self._state = FINISHED
            return
        with condition:
            self._state = FINISHED
            for waiter in self._waiters:
                waiter.add_result(self) if self._exception is None else waiter.add_exception(self)
            condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]
