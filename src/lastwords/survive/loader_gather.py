"""From samples to what travels, with no batch in between.

Where the loader's collate function is torch's own `default_collate`, nobody sees the batch before it is sent. So its
columns are written where they are sent from, and the trainer makes the tensors: no pickle, and no tensor that lives for a
moment. What is unusual in any way is `Unusual`, and collated by torch's own code (see loader_collate.py).
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
from torch.utils.data._utils import collate

from lastwords import recording
from lastwords.survive import loader_collate, worker
from lastwords.survive.loader_shelf import LARGE as WORTH_A_PLACE
from lastwords.survive.loader_shelf import Shelf
from lastwords.survive.loader_transport import TYPE_NUMBERS, VALUE, Gathered, Tree
from lastwords.survive.pickling import LARGE

MOST_PLACES = 64
_NUMBERS = {"q": TYPE_NUMBERS[torch.int64], "d": TYPE_NUMBERS[torch.float64], "?": TYPE_NUMBERS[torch.bool]}
"""What `torch.tensor` makes of Python's own int, float and bool."""
_default_collate, _collate = collate.default_collate, collate.collate


class Unusual(Exception):
    """`default_collate` may make something else of it, or raise."""


class Gatherer:
    """In a worker, after `collate_into_shared_memory`."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf
        self._table = dict(collate.default_collate_fn_map)
        self._places: dict[Any, tuple[bytearray, torch.Tensor]] = {}
        """Of small columns: they are copied when they are sent, and each batch has them again."""

    def is_for(self, collate_fn: object) -> bool:
        """It is torch's own, and so is all that it would call."""
        return collate_fn is _default_collate and loader_collate.is_torchs_own(self._table)

    def gather(self, samples: list[Any]) -> Gathered:
        """What `default_collate` makes of them. Raises Unusual."""
        if collate.default_collate_fn_map != self._table or collate.collate is not _collate:
            raise Unusual
        buffers: list[Any] = []
        return Gathered(self._tree_of(samples, buffers), buffers)

    def _tree_of(self, column: Any, buffers: list[Any]) -> Tree:
        kind = type(column[0])
        if kind is torch.Tensor:
            return self._stacked(column, buffers)
        if kind is tuple or kind is list:
            return [self._tree_of(part, buffers) for part in _parts(column)]
        if kind is dict:
            fields = ((key, _field(column, key)) for key in _all_of(dict, column)[0])
            return {key: self._tree_of(field, buffers) for key, field in fields}
        if kind is str or kind is bytes:
            return VALUE, _all_of(kind, column)
        return _numbers(column, buffers)

    def _stacked(self, column: Any, buffers: list[Any]) -> Tree:
        first = column[0]
        number = TYPE_NUMBERS.get(first.dtype)
        if (
            number is None
            or first.requires_grad
            or first.layout is not torch.strided
            or first.is_nested
            or not first.is_cpu
        ):
            raise Unusual
        shape, length = (len(column), *first.shape), first.nbytes * len(column)
        if not length:
            raise Unusual
        buffer, out = self._place(length, first.dtype, shape, len(buffers))
        try:
            is_plain = (
                torch.stack(column, 0, out=out) is out
            )  # a subclass would have made something of its own
        except Exception:  # noqa: BLE001  # torch's own code will raise it again
            is_plain = False
        if not is_plain:
            raise Unusual
        buffers.append(buffer)
        return number, shape

    def _place(
        self, length: int, dtype: torch.dtype, shape: tuple[int, ...], column: int
    ) -> tuple[Any, torch.Tensor]:
        if length >= WORTH_A_PLACE and self._shelf is not None:
            place = self._shelf.take(length)
            if place is not None:
                there = self._shelf.buffer(place, length)
                return (place, length), torch.frombuffer(there, dtype=dtype).view(shape)
        if length >= LARGE:
            assert worker.current is not None
            buffer: Any = worker.current.allocate(length)
            return pickle.PickleBuffer(buffer), torch.frombuffer(buffer, dtype=dtype).view(shape)
        key = column, dtype, shape
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            data = bytearray(length)
            found = self._places[key] = data, torch.frombuffer(data, dtype=dtype).view(shape)
        return found


def _parts(column: Any) -> list[tuple[Any, ...]]:
    parts = recording.columns(column if type(column) is list else list(column))
    if parts is None:
        raise Unusual
    return parts


def _field(column: Any, key: Any) -> list[Any]:
    if type(key) is not str and type(key) is not int:
        raise Unusual
    try:
        return [sample[key] for sample in column]
    except KeyError:
        raise Unusual from None


def _all_of(kind: type, column: Any) -> Any:
    if set(map(type, column)) != {kind}:
        raise Unusual
    return column


def _numbers(column: Any, buffers: list[Any]) -> Tree:
    found = recording.numbers(column)
    if found is None:
        raise Unusual
    letter, data = found
    buffers.append(data if len(data) < LARGE else pickle.PickleBuffer(data))
    return _NUMBERS[letter], (len(column),)
