"""What a job needs of a machine: measured on the job itself, given by the user, or supposed and said to be so."""

from __future__ import annotations

from typing import Literal

import msgspec

# 64 pictures of 3×224×224 float32, and their labels: the batch that most tutorials make.
USUAL_BATCH_BYTES = 64 * (3 * 224 * 224 * 4 + 8)
USUAL_TENSORS = 2
PREFETCH = 2
"""torch's own default."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    source: Literal["measured", "given", "supposed"]
    words: str
    """What was measured, given or supposed, for people."""
    workers: int
    prefetch: int = PREFETCH
    batch_bytes: int = 0
    batch_tensors: int = 0
    main_bytes: int | None = None
    """Memory of the main process; None: nobody measured it."""
    worker_bytes: int | None = None
    """Memory that a worker has for itself."""
    main_descriptors: int | None = None
    descriptors_per_worker: float | None = None
    """That each worker costs the main process."""
    threads: int | None = None
    """Of all its processes."""
    memory_kills: int = 0
    """That its first batches met."""
    held_batches: int = 1
    """That the main process keeps at the same time."""

    @property
    def in_flight(self) -> int:
        """Batches that exist at once: what the workers prepare ahead, and what the loop holds."""
        return self.workers * self.prefetch + self.held_batches

    @property
    def in_flight_bytes(self) -> int:
        return self.in_flight * self.batch_bytes

    @property
    def if_so(self) -> str:
        """How a sentence about a supposed job ends."""
        return "" if self.source == "measured" else f" (for {self.words})"
