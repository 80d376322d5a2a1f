"""lastwords.torch.DataLoader beside torch's, torchdata's StatefulDataLoader and SPDL, on the same two workers.

Loaders take turns, and the best of a few rounds counts: a busy neighbour hits them all. A rate is that of an epoch
without its first batch, the start of an epoch is measured by itself. Recording is on, as it always is.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.result import Result, paired

NAME = "loader"
WORKERS = 2
ROUNDS = 5

Loaders = dict[str, Callable[..., Any]]


def run(quick: bool) -> list[Result]:
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(1)
    rounds, size = (2, 0.25) if quick else (ROUNDS, 1.0)
    return [
        *transport(rounds, size),
        *compute(rounds, size),
        *starts(rounds),
        memory(),
        death(rounds),
    ]


def loaders() -> Loaders:
    """torch's own first: it is the one that limits are set against."""
    from torch.utils.data import DataLoader

    import lastwords.torch

    found: Loaders = {"ours": lastwords.torch.DataLoader, "torch": DataLoader}
    with contextlib.suppress(ImportError):
        from torchdata.stateful_dataloader import StatefulDataLoader

        found["torchdata"] = StatefulDataLoader
    with contextlib.suppress(ImportError):
        import spdl.pipeline  # noqa: F401

        found["SPDL (threads)"] = Spdl
    return found


class Spdl:
    """SPDL's pipeline with as many threads as others have workers: the dataset and the collate are the same."""

    def __init__(self, dataset: Any, *, batch_size: int, num_workers: int, **_: Any) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._threads = num_workers

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        builder: Any = PipelineBuilder().add_source(range(len(self._dataset))).aggregate(self._batch_size)
        builder = builder.pipe(self._fetch, concurrency=self._threads).add_sink(2 * self._threads)
        pipeline = builder.build(num_threads=self._threads)
        with pipeline.auto_stop():
            yield from pipeline

    def _fetch(self, indices: list[int]) -> Any:
        from torch.utils.data import default_collate

        return default_collate([self._dataset[index] for index in indices])


# Datasets


class Rows:
    """Samples that are there already: all that is left to measure is the way to the trainer."""

    def __init__(self, shape: tuple[int, ...], length: int) -> None:
        import torch

        self._rows = torch.randn(64, *shape)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._rows[index % 64], index


class Nested(Rows):
    def __getitem__(self, index: int) -> Any:
        row = self._rows[index % 64]
        return {"image": row, "boxes": row[0, :4], "meta": {"id": index, "weight": 0.5}, "name": "a"}


class Photos:
    """JPEGs of 224 x 224, decoded, flipped and cropped at random."""

    def __init__(self, length: int) -> None:
        import numpy as np
        from PIL import Image

        noise = np.random.default_rng(0).integers(0, 255, (28, 28, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).resize((224, 224)).save(file, "JPEG")
        self._jpeg = file.getvalue()
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        import numpy as np
        import torch
        from PIL import Image

        left, top = torch.randint(0, 25, (2,)).tolist()
        image = Image.open(io.BytesIO(self._jpeg)).resize((224, 224), box=(left, top, left + 199, top + 199))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        return pixels.flip(-1) if torch.rand(()) < 0.5 else pixels, index


# Measurements


def transport(rounds: int, size: float) -> Iterator[Result]:
    subjects = {
        "3×224×224, batch 32": (Rows((3, 224, 224), int(4_000 * size)), 32),
        "3×64×64, batch 64": (Rows((3, 64, 64), int(20_000 * size)), 64),
        "128 floats, batch 256": (Rows((128,), int(200_000 * size)), 256),
        "scalars, batch 64": (Rows((1,), int(100_000 * size)), 64),
        "nested dict, batch 64": (Nested((3, 32, 32), int(20_000 * size)), 64),
    }
    for name, (dataset, batch_size) in subjects.items():
        yield from side_by_side(name, rounds, dataset, batch_size, limit=3.0)


def compute(rounds: int, size: float) -> Iterator[Result]:
    dataset = Photos(int(2_000 * size))
    yield from side_by_side("JPEG decode and augment, batch 32", rounds, dataset, 32, limit=1.0)
    yield from scaling(8 * rounds, dataset)


def scaling(turns: int, dataset: Any) -> Iterator[Result]:
    """By turns, and the median of many: the same work takes this machine a tenth longer in one turn than in the next, and
    the best of a few compares luck with luck.
    """
    ours, perfect, theirs = [], [], []
    for _ in range(turns):
        ours.append(steady_rate(loaders()["ours"], dataset, 32))
        perfect.append(plain_rate(dataset, 32))
        theirs.append(steady_rate(loaders()["torch"], dataset, 32))
    for name, rates, limit in (("", ours, 0.97), (", torch's own loader", theirs, None)):
        yield paired(
            f"JPEG, of perfect scaling{name} ({turns} turns)",
            list(zip(rates, perfect, strict=True)),
            "items/s",
            limit=limit,
            better="higher",
        )


def side_by_side(name: str, rounds: int, dataset: Any, batch_size: int, limit: float) -> Iterator[Result]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for peer, make in loaders().items():
            best[peer] = max(best.get(peer, 0.0), rate(make, dataset, batch_size))
    for peer, rate_of_peer in best.items():
        if peer != "ours":
            yield Result(
                name=f"{name}, {peer}",
                ours=best["ours"],
                peer=rate_of_peer,
                unit="items/s",
                limit=limit if peer == "torch" else None,
                better="higher",
            )


def rate(make: Callable[..., Any], dataset: Any, batch_size: int, **more: Any) -> float:
    iterator = iter(make(dataset, batch_size=batch_size, num_workers=WORKERS, **more))
    next(iterator)
    begun = time.perf_counter()
    count = sum(1 for _ in iterator)
    return count * batch_size / (time.perf_counter() - begun)


def steady_rate(make: Callable[..., Any], dataset: Any, batch_size: int) -> float:
    """From when each worker's first batch is there to the last batch: neither the start nor the end of workers."""
    iterator = iter(make(dataset, batch_size=batch_size, num_workers=WORKERS))
    count = len(dataset) // batch_size
    begun = 0.0
    for number in range(count):
        if number == WORKERS:
            begun = time.perf_counter()
        next(iterator)
    return (count - WORKERS) * batch_size / (time.perf_counter() - begun)


def plain_rate(dataset: Any, batch_size: int) -> float:
    """Perfect scaling: the same batches made by as many processes at the same time, which hand nothing over.

    On a machine that has no more cores than workers the trainer has none for itself: what it takes counts against us.
    """
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(WORKERS + 1)
    processes = [
        context.Process(target=_make_batches, args=(dataset, batch_size, first, barrier))
        for first in range(WORKERS)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    begun = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - begun
    for process in processes:
        process.join()
    return (len(dataset) // batch_size - WORKERS) * batch_size / seconds


def _make_batches(dataset: Any, batch_size: int, first: int, barrier: Any) -> None:
    """Every so many-th one. The first is not counted, as in `rate`."""
    import torch
    from torch.utils.data import default_collate

    torch.set_num_threads(1)
    for number in range(first, len(dataset) // batch_size, WORKERS):
        if number == first + WORKERS:
            barrier.wait()
        start = number * batch_size
        default_collate([dataset[index] for index in range(start, start + batch_size)])
    barrier.wait()


def starts(rounds: int) -> Iterator[Result]:
    """From `iter(loader)` to the first batch."""
    dataset = Rows((3, 64, 64), 512)
    for name, is_persistent in (("first batch of an epoch", False), ("… with persistent workers", True)):
        makers = loaders()
        made = {
            one: makers[one](dataset, batch_size=64, num_workers=WORKERS, persistent_workers=is_persistent)
            for one in ("ours", "torch")
        }
        seconds: dict[str, list[float]] = {one: [] for one in made}
        for turn in range(2 * rounds + 1):
            for one, loader in made.items():
                begun = time.perf_counter()
                iterator = iter(loader)
                next(iterator)
                if turn:
                    seconds[one].append(1000 * (time.perf_counter() - begun))
                for _ in iterator:
                    pass
        yield Result(
            name=name,
            ours=statistics.median(seconds["ours"]),
            peer=statistics.median(seconds["torch"]),
            unit="ms",
            limit=1.1,
        )


def memory() -> Result:
    """Peak of what the loader's processes have of their own, and of shared memory, over an epoch of large batches.

    Shared memory is the machine's count: a batch that is on its way between torch's processes is mapped by neither.
    """
    dataset = Rows((3, 224, 224), 1_600)
    peaks = {one: peak_memory(loaders()[one], dataset) for one in ("ours", "torch")}
    return Result(
        name="peak memory, 3×224×224", ours=peaks["ours"], peer=peaks["torch"], unit="MB", limit=1.0
    )


def peak_memory(make: Callable[..., Any], dataset: Any) -> float:
    """In a process of its own: what one loader leaves behind is not the next one's."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_measure_peak, args=(make, dataset, theirs))
    process.start()
    peak: float = ours.recv()
    process.join()
    return peak


def _measure_peak(make: Callable[..., Any], dataset: Any, report: Any) -> None:
    peak, before = 0, kibibytes("/proc/meminfo", "Shmem:")
    for number, _ in enumerate(make(dataset, batch_size=32, num_workers=WORKERS)):
        if number % 5 == 0:
            family = [os.getpid(), *children_of(os.getpid())]
            own = sum(kibibytes(f"/proc/{pid}/smaps_rollup", "Pss_Anon:") for pid in family)
            peak = max(peak, own + kibibytes("/proc/meminfo", "Shmem:") - before)
    report.send(peak / 1024)


def children_of(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def kibibytes(path: str, field: str) -> int:
    try:
        with open(path) as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field))
    except OSError:
        return 0  # a worker that has just ended


class Deadly:
    """Items of 2 ms, of which some kill their worker the first time. Each is the first of its batch, so nothing is lost
    with it that has to be done again.
    """

    def __init__(self, length: int, deadly: range) -> None:
        self._length = length
        self._deadly = deadly
        self._has_killed = mmap.mmap(-1, length)  # shared with whoever is forked

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if index in self._deadly and not self._has_killed[index]:
            self._has_killed[index] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
        return index


def death(rounds: int) -> Result:
    """What a killed worker costs an epoch, against the 50 ms that it may. The very first loads what explains it, once."""
    from lastwords.torch import DataLoader

    def seconds(deadly: range) -> float:
        loader = DataLoader(Deadly(800, deadly), batch_size=8, num_workers=WORKERS)
        begun = time.perf_counter()
        count = sum(len(batch) for batch in loader)
        assert count == 800
        return time.perf_counter() - begun

    deadly = range(40, 800, 80)
    seconds(deadly)
    calm = disturbed = float("inf")
    for _ in range(rounds):
        calm = min(calm, seconds(range(0)))
        disturbed = min(disturbed, seconds(deadly))
    cost = 1000 * (disturbed - calm) / len(deadly)
    return Result(name="a death, of the 50 ms it may cost", ours=cost, peer=50, unit="ms", limit=1.0)
