"""The small jobs that recording is measured on; each is run as a process of its own, once with and once without."""

from __future__ import annotations

import sys
import time


def pool(tasks: int) -> float:
    """Tasks of 100 µs on two workers; seconds for all of them, without the pool's own start."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as executor:
        list(executor.map(spin, range(64)))
        begun = time.perf_counter()
        list(executor.map(spin, range(tasks)))
        return time.perf_counter() - begun


def spin(_: int) -> None:
    """About 100 µs of work, counted and not timed: a task that waits for the clock hides what was added to it."""
    for _ in range(7_000):
        pass


def dataloader(items: int) -> float:
    """A small epoch of 3×64×64 images, two workers; seconds for the epoch after a first one."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Images(Dataset):  # type: ignore[misc]  # torch may be absent where types are checked
        def __len__(self) -> int:
            return items

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((3, 64, 64), float(index))

    loader = DataLoader(Images(), batch_size=64, num_workers=2, persistent_workers=True)
    for _ in loader:
        pass
    begun = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - begun


if __name__ == "__main__":
    print({"pool": pool, "dataloader": dataloader}[sys.argv[1]](int(sys.argv[2])))
