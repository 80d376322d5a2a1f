"""Batches between worker and trainer: the structure as a pickle or a tree, the numbers as buffers in shared memory.

torch's own way makes a shared-memory file for each tensor and passes its descriptor. Here a tensor is a buffer in
memory that both sides have mapped all along; the trainer's tensor points into it, and its place is used again when that
tensor is gone.
"""

# ruff: noqa: SLF001  # torch has no public names for what its own loader is made of

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from lastwords.survive import pickling

WASTE = 2
"""A view is sent with its whole storage, and keeps its strides and neighbours, if that is at most so many times its size."""

Tree = Any
"""A list or dictionary of trees; a tensor, as the number of its type and its shape; or (VALUE, what it is).

For what `default_collate` makes of common samples: a pickle of tensors takes five times as long to write and to read.
"""
VALUE = -1
TYPES = (
    torch.float32,
    torch.int64,
    torch.float64,
    torch.bool,
    torch.uint8,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.complex64,
    torch.complex128,
)
TYPE_NUMBERS = {kind: number for number, kind in enumerate(TYPES)}

Packed = tuple[Tree | bytes, list[Any]]


@dataclass(slots=True)
class Gathered:
    """A batch that was never put together: it travels as it is."""

    tree: Tree
    buffers: list[Any]


def pack(value: object) -> Packed:
    if type(value) is Gathered:
        return value.tree, value.buffers
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5, buffer_callback=buffers.append)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return stream.getvalue(), buffers


def unpack(data: Tree | bytes, buffers: list[Any]) -> Any:
    if type(data) is bytes:
        return pickling.loads(data, buffers=buffers)
    return _grown(data, iter(buffers))


def _grown(tree: Tree, buffers: Iterator[Any]) -> Any:
    kind = type(tree)
    if kind is list:
        return [_grown(one, buffers) for one in tree]
    if kind is dict:
        return {key: _grown(one, buffers) for key, one in tree.items()}
    number, what = tree
    if number == VALUE:
        return what
    flat = torch.frombuffer(next(buffers), dtype=TYPES[number])
    return flat if len(what) == 1 else flat.view(what)


# Tensors as buffers


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    if (
        tensor.layout is not torch.strided
        or tensor.device.type != "cpu"
        or tensor.is_quantized
        or tensor.is_nested
    ):
        return tensor.__reduce_ex__(5)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    size = tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    if storage.nbytes() > WASTE * size:
        tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        storage = tensor.untyped_storage()
    details = (tensor.dtype, tuple(tensor.shape), tensor.requires_grad)
    if tensor.is_contiguous() and storage.nbytes() == size:
        return _whole, (_memory(tensor) if size else None, *details)
    return _view, (storage, tensor.storage_offset(), tensor.stride(), *details)


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    return _storage, (_buffer(storage) if storage.nbytes() else b"",)


def _reduce_typed_storage(storage: torch.TypedStorage) -> Any:
    return _typed_storage, (storage._untyped_storage, storage.dtype)


def _memory(tensor: torch.Tensor) -> pickle.PickleBuffer:
    try:
        return pickle.PickleBuffer(tensor.detach().numpy())
    except TypeError:  # numpy has no such numbers: bfloat16 and smaller
        return _buffer(tensor.untyped_storage())


def _buffer(storage: torch.UntypedStorage) -> pickle.PickleBuffer:
    flat = torch.empty(0, dtype=torch.uint8).set_(storage)
    return pickle.PickleBuffer(flat.numpy())


def _whole(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:  # noqa: FBT001
    tensor = (
        torch.frombuffer(buffer, dtype=dtype).view(shape)
        if buffer is not None
        else torch.empty(shape, dtype=dtype)
    )
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _view(
    storage: torch.UntypedStorage,
    offset: int,
    stride: tuple[int, ...],
    dtype: torch.dtype,
    shape: tuple[int, ...],
    requires_grad: bool,  # noqa: FBT001
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    return tensor.requires_grad_(requires_grad)


def _storage(buffer: Any) -> torch.UntypedStorage:
    if not len(buffer):
        return torch.UntypedStorage()
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def _typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


class _Reducers(dict[type, Any]):
    """What torch.multiprocessing registers with copyreg is not wanted here; what the user registers is."""

    def __missing__(self, kind: type) -> Any:
        return copyreg.dispatch_table[kind]


_REDUCERS = _Reducers(
    {
        torch.Tensor: _reduce_tensor,
        torch.UntypedStorage: _reduce_storage,
        torch.TypedStorage: _reduce_typed_storage,
    }
)
