"""Hugging Face datasets with `num_proc`: the shard that a worker maps is its item, with the rows it holds.

Which row of it cannot be told: they are read inside a loop that offers no place to stand, and a wrapper around the
job's function would be a line in its tracebacks.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.items import RUN, note_called


def adapt(module: ModuleType) -> None:
    write: Any = module._write_generator_to_queue

    @functools.wraps(write)
    def _write_generator_to_queue(queue: Any, func: Any, kwargs: Any) -> Any:
        try:
            _mark(kwargs)
        except Exception:
            pass  # a datasets that is built otherwise goes unmarked, and works
        return write(queue, func, kwargs)

    module._write_generator_to_queue = _write_generator_to_queue  # type: ignore[attr-defined]


def _mark(kwargs: dict[str, Any]) -> None:
    note_called(kwargs.get("function"))
    rank, offset, shard = kwargs.get("rank"), kwargs.get("offset"), kwargs.get("shard")
    rows = f", rows {offset} to {offset + len(shard) - 1}" if offset is not None and shard is not None else ""
    _native.begin(None, f"shard {rank}{rows}", RUN)
