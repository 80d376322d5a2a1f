"""What was measured of a job in its first batches."""

from __future__ import annotations

import msgspec


class LoaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the job gave its DataLoader; None: not known, or not given."""

    num_workers: int = 0
    prefetch_factor: int | None = None
    batch_size: int | None = None
    pin_memory: bool = False


class ProcessMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and nanoseconds. Peaks are those of its whole life."""

    pid: int
    parent: int | None = None
    role: str | None = None
    worker: int | None = None
    forked: bool | None = None
    items: int = 0
    peak_bytes: int = 0
    private_bytes: int = 0
    """The most that it had for itself when we looked."""
    descriptors: int = 0
    threads: int = 0
    cpu_ns_per_item: float | None = None
    queue_ns_per_item: float | None = None
    """Ready to run, and no CPU was free."""
    wait_ns_per_item: float | None = None
    """Neither running nor wanting to: files, network, locks."""
    item_ns: float | None = None
    """From an item's beginning to its end."""
    slowest_item_ns: float | None = None
    busy: float | None = None
    """Part of the time in which it had an item."""
    cpu_share: float | None = None
    """CPUs that it kept busy."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was forked, and what its parent had at that moment."""

    parent_threads: int
    names: tuple[str, ...] = ()
    """Of those threads, the main one left out."""
    cuda: bool = False
    """The parent had a GPU open."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    command: tuple[str, ...]
    seconds: float
    ended: str
    """`stopped` by us after enough batches, `too slow`, or by itself: `exit code 1`, `signal 9`."""
    is_failure: bool = False
    """It ended by itself, and not well."""
    items: int = 0
    batches: float | None = None
    loader: LoaderSettings | None = None
    main: ProcessMeasures | None = None
    workers: tuple[ProcessMeasures, ...] = ()
    batch_bytes: int | None = None
    batch_tensors: float | None = None
    held_batches: float | None = None
    """That the main process had mapped at once, at most."""
    shared_memory_peak: int | None = None
    """Bytes of /dev/shm that were in use while it ran and not before."""
    threads: int = 0
    """Of all processes together, at most."""
    fork: Fork | None = None
    runtimes: tuple[str, ...] = ()
    """OpenMP and BLAS libraries that one process had loaded."""
    said: tuple[str, ...] = ()
    """The last lines that it wrote, where it failed or was too slow."""
    stood_still: float = 0.0
    """Seconds before its end in which no item was done, of a job that had done some."""
    memory_kills: int = 0
    """How often the kernel killed for want of memory in our control groups meanwhile."""
    left_running: int = 0
    """Processes that it left behind, and that we ended."""
    deaths: int = 0
    causes: tuple[str, ...] = ()
    """Of its deaths, the likeliest of each, or else of its last lines. Peaks are seen by looks now and then; what died of one is sure."""
