"""Batches to the GPU with `pin_memory=True`: pinned where they lie, beside torch's loader, and beside ours with its thread.

Loaders take turns. The clock counts until the last batch is on the GPU, without the first batch; CPU is that of the
trainer's process, where torch's thread makes its copies, and a trainer has something else to do. Needs a GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from bench.loader import Rows
from bench.result import Result, paired

NAME = "pinned"
WORKERS = 4
ROUNDS = 9
PEERS = ("torch", "with torch's thread")

Make = Callable[..., Any]


class Epoch(NamedTuple):
    """Microseconds for each batch."""

    clock: int
    cpu: int


def run(quick: bool) -> list[Result]:
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        print("pinned: left out, there is no GPU that torch can use", file=sys.stderr)
        return []
    torch.set_num_threads(1)
    rounds, size = (3, 0.5) if quick else (ROUNDS, 1.0)
    return [
        *side_by_side(
            "3×224×224, batch 32, to the GPU", Rows((3, 224, 224), int(32 * 200 * size)), 32, rounds
        ),
        *side_by_side(
            "256 MB batches to the GPU", Rows((1024, 1024), int(64 * 48 * size)), 64, -(-rounds // 3)
        ),
        *side_by_side("128 floats, batch 256, to the GPU", Rows((128,), int(256 * 800 * size)), 256, rounds),
    ]


def side_by_side(name: str, dataset: Any, batch_size: int, rounds: int) -> Iterator[Result]:
    found: dict[str, list[Epoch]] = {one: [] for one in ("ours", *PEERS)}
    for turn in range(rounds + 1):
        for one, epochs in found.items():
            epoch = measured(maker(one), dataset, batch_size)
            if turn:  # the first one fills torch's cache of pinned memory
                epochs.append(epoch)
    for peer in PEERS:
        for what in Epoch._fields:
            pairs = [
                (getattr(ours, what), getattr(theirs, what))
                for ours, theirs in zip(found["ours"], found[peer], strict=True)
            ]
            yield paired(f"{name}, {what}, {peer}", pairs, "µs/batch", limit=1.0)


def maker(name: str) -> Make:
    from torch.utils.data import DataLoader

    import lastwords.torch

    return DataLoader if name == "torch" else lastwords.torch.DataLoader if name == "ours" else _with_a_thread


def _with_a_thread(*args: Any, **kwargs: Any) -> Any:
    """Ours, where the driver is too old for arenas that it knows."""
    import lastwords.torch

    loader = lastwords.torch.DataLoader(*args, **kwargs)
    with mock.patch("lastwords.survive.loader_iterator.pinning_for", return_value=None):
        return iter(loader)


def measured(make: Make, dataset: Any, batch_size: int) -> Epoch:
    import torch

    iterator = iter(make(dataset, batch_size=batch_size, num_workers=WORKERS, pin_memory=True))
    next(iterator)
    torch.cuda.synchronize()
    begun, cpu = time.perf_counter(), time.process_time()
    count = 0
    for batch in iterator:
        batch[0].to("cuda", non_blocking=True)
        count += 1
    torch.cuda.synchronize()
    return Epoch(
        round(1e6 * (time.perf_counter() - begun) / count), round(1e6 * (time.process_time() - cpu) / count)
    )
