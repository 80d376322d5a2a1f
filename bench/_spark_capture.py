"""pyspark's daemon, for one run of `bench.spark`: keeps what the executor sends to each Python worker, in files of its own.

`bench._spark_worker` sends it to a worker again, as often as it takes.
"""

from __future__ import annotations

import io
import os
import runpy
from typing import Any

VARIABLE = "LASTWORDS_BENCH_CAPTURE"
_fdopen, _daemon = os.fdopen, os.getpid()


class Kept(io.FileIO):
    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        name = f"{os.getpid()}-{os.urandom(4).hex()}"
        self.copy = open(os.path.join(os.environ[VARIABLE], name), "wb", buffering=0)  # noqa: SIM115

    def readinto(self, buffer: Any) -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self.copy.write(memoryview(buffer)[: count or 0])
        return count


def fdopen(descriptor: int, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    """A worker opens its socket so; the daemon opens its own input before the first fork."""
    if mode != "rb" or os.getpid() == _daemon:
        return _fdopen(descriptor, mode, *args, **kwargs)
    return io.BufferedReader(Kept(descriptor), *args)


if __name__ == "__main__":
    os.fdopen = fdopen  # type: ignore[assignment]
    runpy.run_module("pyspark.daemon", run_name="__main__")
