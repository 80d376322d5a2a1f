"""Batches that an engine hands to the job's function: each is an item, named with the rows that it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lastwords import recording


def each_batch(
    batches: Iterable[Any], rows_of: Callable[[Any], int | None], word: str = "batch"
) -> Iterator[Any]:
    """A batch may be a whole block. `rows_of` gives None where the number is not known without looking."""
    begins = 0
    for number, batch in enumerate(batches):
        rows = rows_of(batch)
        within = f" (rows {begins} to {begins + rows - 1})" if rows else ""
        recording.begin_item(f"{word} {number}{within}", number)
        begins += rows or 0
        yield batch
    recording.end_item()
