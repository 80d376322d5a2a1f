"""The small jobs that recording is measured on.

Each is a process that does one round of its work per line on its standard input and answers with the nanoseconds it
took, by the clock and of CPU: `bench.recording` lets a recorded one and a plain one take turns.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TASKS = 500
IMAGES = 1024


def pool() -> Callable[[], object]:
    """Tasks of 100 µs on two workers."""
    from concurrent.futures import ProcessPoolExecutor

    executor = ProcessPoolExecutor(2)
    return lambda: list(executor.map(spin, range(TASKS)))


def multiprocessing_pool() -> Callable[[], object]:
    """The same on a `multiprocessing.Pool`."""
    import multiprocessing

    pool = multiprocessing.Pool(2)
    return lambda: pool.map(spin, range(TASKS), chunksize=1)


def spin(number: int) -> None:
    """About 100 µs of work, counted and not timed: a task that waits for the clock hides what was added to it.

    It allocates nothing: the numbers of a `range` cost a third more where the heap's free block happens to be the last
    of its pool, and what a process has imported decides that.
    """
    for _ in itertools.repeat(number, 20_000):
        pass


def dataloader() -> Callable[[], object]:
    """A small epoch of 3×64×64 images on two workers that stay."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Images(Dataset):  # type: ignore[misc]  # torch may be absent where types are checked
        def __len__(self) -> int:
            return IMAGES

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((3, 64, 64), float(index))

    loader = DataLoader(Images(), batch_size=64, num_workers=2, persistent_workers=True)
    return lambda: sum(1 for _ in loader)


def cpu_ns() -> int:
    """Of this process and its workers: what others on the machine do is not in it."""
    return sum(
        int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        for pid in (os.getpid(), *_workers())
        for thread in os.listdir(f"/proc/{pid}/task")
    )


def _workers() -> Iterator[int]:
    for thread in os.listdir("/proc/self/task"):
        yield from map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())


if __name__ == "__main__":
    subjects = {"pool": pool, "multiprocessing_pool": multiprocessing_pool, "dataloader": dataloader}
    one_round = subjects[sys.argv[1]]()
    one_round()  # workers start, pages are touched
    for _ in sys.stdin:
        cpu, begun = cpu_ns(), time.perf_counter_ns()
        one_round()
        took = time.perf_counter_ns() - begun
        print(took, cpu_ns() - cpu, flush=True)
