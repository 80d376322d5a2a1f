"""torch's own `default_collate` in a worker: the same batches, built where they are handed over, and in less time.

torch looks up how to collate a type in a table that anybody may add to. These are entries of that table, so a collate
function of the user's that calls `default_collate` has them too. What is unusual in any way goes torch's own way.
"""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

from array import array
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
    length = first.nbytes * len(batch)
    if length < LARGE or worker.current is None:
        return torch.stack(batch, 0)
    shape = (len(batch), *first.shape)
    out = torch.frombuffer(worker.current.allocate(length), dtype=first.dtype).view(shape)
    return torch.stack(batch, 0, out=out)


def _collate_elsewhere(batch: Any, collate_fn_map: Table | None) -> torch.Tensor:
    """What torch does, less its shared memory: it says what it does not collate, and knows subclasses."""
    worker_module = torch.utils.data._utils.worker
    info, worker_module._worker_info = worker_module._worker_info, None
    try:
        return collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    finally:
        worker_module._worker_info = info


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

# Samples of several parts. torch's own look-up is by exact type first, so subclasses do not come here.


def _collate_sequences(batch: Any, *, collate_fn_map: Table) -> list[Any]:
    if not _is_as_we_know_it(collate_fn_map) or len(set(map(len, batch))) != 1:
        return _as_torch_does(batch, collate_fn_map)  # type: ignore[no-any-return]
    return [collate.collate(part, collate_fn_map=collate_fn_map) for part in zip(*batch, strict=True)]


def _collate_dicts(batch: Any, *, collate_fn_map: Table) -> dict[Any, Any]:
    if not _is_as_we_know_it(collate_fn_map):
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
