"""Datasets for the loader's tests. Importable, so that spawned workers find them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Augmented(Dataset):
    """Every sample draws from all three generators, and a different number of times."""

    def __init__(self, length: int = 120) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        noise = torch.randn(8 + index % 3)[:8]
        shift = np.random.randn(1 + index % 2)[:1]  # one that numpy keeps for the next call
        angle = random.gauss(0, 1) + random.random()
        return {"index": index, "noise": noise, "shift": shift, "angle": angle, "worker": worker_id()}


class Stream(IterableDataset):
    """Each worker has its share, and draws random numbers for it."""

    def __init__(self, length: int = 90) -> None:
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in range(first, self._length, step):
            yield {"index": index, "noise": torch.randn(3), "angle": random.random()}


class StatefulStream(Stream):
    """Never the same twice, but able to say where it is."""

    def __init__(self, length: int = 90) -> None:
        super().__init__(length)
        self._position = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in list(range(first, self._length, step))[self._position :]:
            self._position += 1
            yield {"index": index, "noise": torch.randn(3), "entropy": os.urandom(4)}
        self._position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._position = state["position"]


class Deadly(Dataset):
    """Some items kill whoever fetches them; with `late`, whoever collates them."""

    def __init__(self, deadly: Iterable[int], *, late: bool = False, length: int = 40) -> None:
        self._deadly = set(deadly)
        self._late = late
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if index in self._deadly and not self._late:
            die()
        return index

    def collate(self, items: list[int]) -> torch.Tensor:
        if self._late and self._deadly & set(items):
            die()
        return torch.tensor(items)


class DeadlyOnce(Dataset):
    """Some items kill the first worker that fetches them, others (`again`) every one."""

    def __init__(self, deadly: Iterable[int], notes: Path, *, again: Iterable[int] = ()) -> None:
        self._deadly = set(deadly)
        self._again = set(again)
        self._notes = notes

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        note = self._notes / f"met-{index}"
        if index in self._again or (index in self._deadly and not note.exists()):
            with note.open("a") as file:
                file.write("x")
            die()
        return index


class Held(Dataset):
    """The first item is not ready before the gate, a file, is there."""

    def __init__(self, gate: Path, length: int) -> None:
        self._gate = gate
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        while index == 0 and not self._gate.exists():
            time.sleep(0.001)
        return index


def worker_id() -> int:
    info = get_worker_info()
    return info.id if info is not None else -1


def die() -> None:
    ctypes.string_at(8)


def serving(supervisor: Any) -> list[int]:
    """Workers that have begun to work: three that die while they start, one after the other, mean that none can."""
    workers = [seat.worker for seat in supervisor._dispatch.seats]
    return [worker.pid for worker in workers if worker is not None and worker.is_serving]


def kill(pids: list[int], chooser: random.Random) -> bool:
    """False: it has been replaced just now."""
    try:
        os.kill(chooser.choice(pids), signal.SIGKILL)
    except (ProcessLookupError, IndexError):
        return False
    return True


def digest(batches: Iterable[Any]) -> str:
    """Of all that was delivered, types and order included."""
    found = hashlib.sha256()
    for batch in batches:
        add(found, batch)
    return found.hexdigest()


def add(found: Any, value: Any) -> None:
    found.update(type(value).__name__.encode())
    if isinstance(value, torch.Tensor):
        found.update(f"{value.dtype} {tuple(value.shape)}".encode())
        found.update(value.numpy().tobytes())
    elif isinstance(value, dict):
        for key in value:
            found.update(str(key).encode())
            add(found, value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            add(found, one)
    else:
        found.update(repr(value).encode())
