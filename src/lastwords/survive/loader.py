"""`lastwords.torch.DataLoader`: torch's own, except that a death costs one item and not the epoch."""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.utils.data
from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _BaseDataLoaderIter

from lastwords.survive import loader_state
from lastwords.survive.loader_iterator import SurvivingIterator
from lastwords.survive.loader_report import Record, Report
from lastwords.survive.policy import Policy
from lastwords.survive.progress import Kind

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar  # which knows defaults from Python 3.13 on

    T_co = TypeVar("T_co", covariant=True)


def _says_all_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """For help(), for editors, and for Lightning, which makes loaders anew by what `__init__` says it takes."""
    theirs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters.values()
    ours = [one for one in inspect.signature(init).parameters.values() if one.kind is one.KEYWORD_ONLY]
    init.__signature__ = inspect.Signature([*theirs, *ours])  # type: ignore[attr-defined]
    return init


class DataLoader(torch.utils.data.DataLoader[T_co]):  # type: ignore[misc]  # torch is not looked into
    """All of `torch.utils.data.DataLoader`, and `policy`: what to do when an item kills its worker.

    `progress`: "rich", "tqdm", or a function that is given the counts. `snapshot_every_n_steps` is an argument of
    torchdata's StatefulDataLoader, and changes nothing here: a state is exact after every batch.

    Without a death the batches are torch's own, bit for bit. After one they are those of a run without it.
    """

    _iterator: Any

    @_says_all_arguments
    def __init__(
        self,
        *args: Any,
        policy: Policy | None = None,
        progress: Kind | None = None,
        snapshot_every_n_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.policy = policy or Policy()
        self.progress = progress
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self._current: Any = None
        """Gives the iterator of this epoch, or None. Not the iterator itself: its workers end with its last user."""
        self._left_at: list[dict[str, Any]] = []
        self._to_go_on_from: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Loaders are copied and pickled; where an epoch is stays with the one that runs it."""
        return self.__dict__ | {"_current": None, "_left_at": []}

    def __iter__(self) -> _BaseDataLoaderIter:
        iterator = super().__iter__()
        if self.num_workers:
            self._current, self._left_at = weakref.ref(iterator), iterator.left_at
        else:
            self._current, self._left_at = lambda: iterator, []
        return iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        state, self._to_go_on_from = self._to_go_on_from, None
        with loader_state.at_epoch_start(self, state):
            if state is not None and state["is_finished"]:
                state = None
            if self.num_workers > 0:
                self.check_worker_number_rationality()
                return SurvivingIterator(self, self.policy, record_of(self), state)
            iterator = loader_state.SingleProcessIterator(self, record_of(self), state)
        iterator.load_dataset()
        return iterator

    def report(self) -> Report:
        """Deaths, lost items, times and waiting, since this loader was made."""
        return record_of(self).finished()

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch is: after the last batch that was given. Small enough to be saved at every step."""
        return loader_state.saved(self._state())

    def _state(self) -> dict[str, Any]:
        if self._to_go_on_from is not None:
            return self._to_go_on_from
        iterator = self._current() if self._current is not None else None
        state: dict[str, Any] | None = self._left_at[0] if self._left_at else None
        if iterator is not None:
            state = iterator.state()
        if state is None:
            return loader_state.epoch_start(self) | {"is_finished": True}
        return loader_state.next_epoch(self, state) if state["is_finished"] else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there; from the end of an epoch, with the next one."""
        loader_state.check(state, self)
        to_go_on_from = loader_state.of_saved(state)
        persistent, self._iterator = self._iterator, None
        if persistent is not None:
            persistent._shutdown_workers()
        self._left_at = []
        self._to_go_on_from = to_go_on_from


def as_ours(made: Any, given: DataLoader[Any]) -> DataLoader[Any]:
    """What a framework has made of ours in torch's class: with its settings, and our policy, progress and report."""
    arguments = set(inspect.signature(torch.utils.data.DataLoader.__init__).parameters) - {"self", "shuffle"}
    if made._dataset_kind == _DatasetKind.Iterable:
        arguments -= {"sampler", "batch_sampler"}
    elif made.batch_sampler is not None:
        arguments -= {"batch_size", "sampler", "drop_last"}
    settings = {name: getattr(made, name) for name in arguments if hasattr(made, name)}
    ours: DataLoader[Any] = DataLoader(**settings, policy=given.policy, progress=given.progress)
    ours.__dict__["_lastwords_record"] = record_of(given)
    return ours


def record_of(loader: Any) -> Record:
    """Of any loader, torch's own included: see `surviving_iterator`."""
    record: Record | None = loader.__dict__.get("_lastwords_record")
    if record is None:
        record = loader.__dict__["_lastwords_record"] = Record()
    return record


def surviving_iterator(loader: Any) -> SurvivingIterator:
    """For a loader of torch's own class, as `lastwords run --loader` makes it."""
    loader.check_worker_number_rationality()
    return SurvivingIterator(loader, getattr(loader, "policy", None) or Policy(), record_of(loader))
