"""Run as a script by the interpreter that a job would use, in a process that is thrown away: it imports the heavy
libraries, starts a DataLoader with two idle workers, and prints what that took as one line of JSON.

Standard library alone until the libraries themselves: the interpreter may have no lastwords.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any

LIBRARIES = ("numpy", "scipy", "sklearn", "torch")
WORKERS = 2


def main() -> None:
    found: dict[str, Any] = {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "imports": {},
        "failed": {},
    }
    bare = memory(os.getpid())
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is not None:
            load(name, found)
    import multiprocessing

    found["start_method"] = multiprocessing.get_start_method()
    found["bare_bytes"], found["loaded_bytes"] = bare, memory(os.getpid())
    found["threads"] = count("/proc/self/task")
    found["runtimes"] = pools()
    if "torch" in found["imports"]:
        found["torch"] = of_torch()
    found["libraries"] = mapped()
    print(json.dumps(found), flush=True)  # noqa: T201  # the answer


def load(name: str, found: dict[str, Any]) -> None:
    begun = time.monotonic()
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001  # a broken library is what we came to find
        found["failed"][name] = f"{type(error).__name__}: {error}"[:500]
        return
    found["imports"][name] = {
        "version": str(getattr(module, "__version__", "")),
        "seconds": round(time.monotonic() - begun, 3),
    }


def pools() -> list[dict[str, Any]]:
    """Threadpoolctl's view, where the interpreter has it."""
    try:
        import threadpoolctl
    except ImportError:
        return []
    keys = ("user_api", "internal_api", "filepath", "num_threads")
    return [{key: one.get(key) for key in keys} for one in threadpoolctl.threadpool_info()]


def of_torch() -> dict[str, Any]:
    import torch
    import torch.multiprocessing

    told = {
        "sharing_strategy": torch.multiprocessing.get_sharing_strategy(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "built_for": list(torch.cuda.get_arch_list()) if torch.version.cuda else [],
    }
    try:
        told["loader"] = loader()
    except BaseException as error:  # noqa: BLE001  # the loader dies here, so it dies in the job
        told["loader_failed"] = f"{type(error).__name__}: {error}"[:500]
    return told


def loader() -> dict[str, Any]:
    """What an idle worker costs: a real DataLoader, after its first batch."""
    import torch
    from torch.utils.data import DataLoader

    before = count("/proc/self/fd")
    rows = iter(DataLoader([torch.zeros(1)] * 64, batch_size=1, num_workers=WORKERS, timeout=60))
    first = next(rows)
    workers = [process.pid for process in rows._workers]  # noqa: SLF001  # nobody else knows their pids
    after = count("/proc/self/fd")
    told = {
        "descriptors": before,
        "descriptors_per_worker": (after - before - 1) / WORKERS,
        "worker_bytes": max(memory(pid, shared=False) for pid in workers),
        "worker_threads": max(count(f"/proc/{pid}/task") for pid in workers),
    }
    del first, rows
    return told


def memory(pid: int, *, shared: bool = True) -> int:
    """Resident bytes; with `shared` off, only those that no other process has."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            rows = dict(line.split()[:2] for line in file.read().splitlines()[1:])
    except (OSError, ValueError):
        return 0
    names = ("Rss:",) if shared else ("Private_Clean:", "Private_Dirty:")
    return sum(int(rows.get(name, 0)) for name in names) * 1024


def count(path: str) -> int:
    return len(os.listdir(path))


def mapped() -> list[str]:
    with open("/proc/self/maps") as file:
        rows = (line.rstrip("\n").split(None, 5) for line in file)
        return sorted({row[5] for row in rows if len(row) > 5 and ".so" in row[5] and row[5][0] == "/"})


if __name__ == "__main__":
    main()
