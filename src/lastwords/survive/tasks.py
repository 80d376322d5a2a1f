"""A task, as the supervisor sees it. Its owner (the executor, a loader) derives from it and is told what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lastwords import recording

if TYPE_CHECKING:
    from lastwords.survive.deaths import Death
    from lastwords.survive.policy import WorkerDied

NO_ARGUMENTS: Mapping[str, Any] = {}


class Task:
    """A call. All methods run on the supervisor's thread, and must be quick and not raise."""

    __slots__ = ("args", "attempts", "kwargs", "label", "seat", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = NO_ARGUMENTS,
        *,
        label: int = 0,
        seat: int | None = None,
    ) -> None:
        self.work = work
        self.args = args
        self.kwargs = kwargs
        self.label = label
        """The item's index in the black box."""
        self.seat = seat
        """The only worker that may run it; None: any."""
        self.attempts = 0
        """How often it has killed its worker."""

    size = 1
    """For how many tasks it counts. The next three are only asked of those that are more than one."""

    def cut(self, most: int) -> tuple[Task, Task]:
        """Nobody has begun it: its first so many items, and the rest, to take its place."""
        raise NotImplementedError

    def middle_behind(self, position: int) -> int | None:
        """Its worker is at the item with that position: where what it has not begun would be halved; None: it has all."""
        raise NotImplementedError

    def give_away(self, position: int) -> Task:
        """The items from that position on, which are somebody else's now."""
        raise NotImplementedError

    def begins(self) -> bool:
        """It is about to be handed to a worker, for the first time or again. False: nobody wants it any more."""
        return True

    def succeeded(self, value: Any) -> Task | None:
        """Its result. Called once, and then nothing else is. What it returns is left to do."""

    def failed(self, error: BaseException) -> None:
        """It raised, could not be sent, or is poison (WorkerDied). Called once, and then nothing else is."""

    def count(self, death: Death) -> None:  # noqa: ARG002  # for those who override it
        """It killed its worker once more."""
        self.attempts += 1

    def killed(self, death: Death) -> None:
        """It killed its worker and is going to be tried again: the moment to restore what it needs (`args`)."""

    def part(self, value: Any) -> int | None:
        """Some of its results, ahead of the rest. For how many tasks they count, where its own size has become less."""

    def spoil(self, error: BaseException) -> None:
        """Some of its results, ahead of the rest, and they cannot be read."""

    def left(self) -> list[Task]:
        """Its worker has died, and it is not to blame: what takes its place."""
        return [self]

    def split(self, death: Death) -> tuple[Task | None, list[Task]]:  # noqa: ARG002  # for those who override it
        """It killed its worker: the task that is to blame, and others that take its place and are innocent."""
        return self, []

    def cancelled(self) -> None:
        """Nobody has begun it, and nobody will."""

    def poisoned(self, death: Death, error: WorkerDied) -> bool:  # noqa: ARG002  # for those who override it
        """It has killed too often. True: its owner has made something else of it (`args`), to be tried as before."""
        return False

    def words(self, death: Death) -> str:  # noqa: ARG002  # for those who override it
        """What it is, for whoever is told of the death."""
        return recording.describe_call(self.work, self.args, dict(self.kwargs))
