"""torch's own `default_collate` in a worker: the same batches, built where they are handed over, and in less time.

torch looks up how to collate a type in a table that anybody may add to. These are entries of that table, so a collate
function of the user's that calls `default_collate` has them too. What is unusual in any way goes torch's own way.
"""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data._utils import collate

from lastwords.survive import worker
from lastwords.survive.pickling import LARGE

Table = dict[Any, Any]

_known: set[Any] = set()
"""Keys of torch's table when ours were put in: one that comes later may stand for ours, too."""


def collate_into_shared_memory() -> None:
    """In a worker. torch's own way is a new file in /dev/shm each time."""
    table = collate.default_collate_fn_map
    for kind, (theirs, ours) in _NUMBERS.items():
        if table.get(kind) is theirs:
            table[kind] = ours
    if not any(issubclass(container, kind) for kind in table for container in _CONTAINERS):
        table |= _CONTAINERS
    _known.update(table)


def is_torchs_own(table: Table) -> bool:
    """Nobody else has an entry that would be asked for tensors, Python's own numbers and strings, or containers."""
    ours = {kind: ours for kind, (_, ours) in _NUMBERS.items()} | _CONTAINERS
    expected = ours | {str: collate.collate_str_fn, bytes: collate.collate_str_fn}
    first_for_bool = next((kind for kind in table if issubclass(bool, kind)), None)
    return first_for_bool is int and all(table.get(kind) is function for kind, function in expected.items())


# Tensors and numbers


def _collate_tensors(batch: Any, *, collate_fn_map: Table | None = None) -> torch.Tensor:
    first = batch[0]
    if (
        type(first) is not torch.Tensor
        or first.layout is not torch.strided
        or first.is_nested
        or first.device.type != "cpu"
    ):
        return _collate_elsewhere(batch, collate_fn_map)
    length, shape = first.nbytes * len(batch), (len(batch), *first.shape)
    if length < LARGE or worker.current is None:
        out = first.new_empty(shape)
    else:
        out = torch.frombuffer(worker.current.allocate(length), dtype=first.dtype).view(shape)
    with suppress(Exception):  # torch says it in its own words
        return torch.stack(
            batch, 0, out=out
        )  # with `out`, as torch does: the first one's type is the batch's
    return collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)


def _collate_elsewhere(batch: Any, collate_fn_map: Table | None) -> torch.Tensor:
    """What torch does, less its shared memory: it says what it does not collate, and knows subclasses."""
    worker_module = torch.utils.data._utils.worker
    info, worker_module._worker_info = worker_module._worker_info, None
    try:
        found = collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    finally:
        worker_module._worker_info = info
    # In a worker torch refuses gradients, and only there.
    return collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map) if found.requires_grad else found


def _collate_integers(batch: Any, *, collate_fn_map: Table | None = None) -> torch.Tensor:
    if set(map(type, batch)) == {int}:
        try:
            return torch.frombuffer(array("q", batch), dtype=torch.int64)
        except OverflowError:
            pass  # torch says it in its own words
    return collate.collate_int_fn(batch, collate_fn_map=collate_fn_map)


def _collate_floats(batch: Any, *, collate_fn_map: Table | None = None) -> torch.Tensor:
    if set(map(type, batch)) == {float}:
        return torch.frombuffer(array("d", batch), dtype=torch.float64)
    return collate.collate_float_fn(batch, collate_fn_map=collate_fn_map)


_NUMBERS = {
    torch.Tensor: (collate.collate_tensor_fn, _collate_tensors),
    int: (collate.collate_int_fn, _collate_integers),
    float: (collate.collate_float_fn, _collate_floats),
}

# Samples of several parts. Subclasses (named tuples, ordered dictionaries) are found by the same entries, and keep their type.


def _collate_sequences(batch: Any, *, collate_fn_map: Table) -> list[Any]:
    is_plain = type(batch[0]) in _CONTAINERS and _is_as_we_know_it(collate_fn_map)
    if not is_plain or len(set(map(len, batch))) != 1:
        return _as_torch_does(batch, collate_fn_map)  # type: ignore[no-any-return]
    return [collate.collate(part, collate_fn_map=collate_fn_map) for part in zip(*batch, strict=True)]


def _collate_dicts(batch: Any, *, collate_fn_map: Table) -> dict[Any, Any]:
    if type(batch[0]) is not dict or not _is_as_we_know_it(collate_fn_map):
        return _as_torch_does(batch, collate_fn_map)  # type: ignore[no-any-return]
    return {
        key: collate.collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
        for key in batch[0]
    }


_CONTAINERS = {tuple: _collate_sequences, list: _collate_sequences, dict: _collate_dicts}


def _is_as_we_know_it(table: Table) -> bool:
    return len(table) == len(_known) and table.keys() == _known


def _as_torch_does(batch: Any, table: Table) -> Any:
    without = {kind: function for kind, function in table.items() if kind not in _CONTAINERS}
    return collate.collate(batch, collate_fn_map=without)
