"""Two processes by torch.multiprocessing.spawn, one of which dies. Prints what its caller caught."""

import json
import sys
from pathlib import Path

import torch.multiprocessing as mp

sys.path.append(str(Path(__file__).resolve().parents[1] / "victims"))
from deaths import die


def work(rank: int) -> None:
    if rank == 1:
        die("SIGSEGV")


if __name__ == "__main__":
    try:
        mp.start_processes(work, nprocs=2, start_method="fork")
    except mp.ProcessExitedException as error:
        notes = getattr(error, "__notes__", [])
        print(json.dumps({"type": type(error).__name__, "message": str(error), "notes": notes}))
