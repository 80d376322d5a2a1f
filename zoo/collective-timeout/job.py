"""Two ranks, of which one never comes to the meeting: the other waits until its patience ends."""

import datetime as dt
import multiprocessing
import os
import tempfile

import torch.distributed as distributed


def rank(number: int, store: str, done) -> None:
    patience = dt.timedelta(seconds=2)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=number, world_size=2, timeout=patience
    )
    if number == 0:
        try:
            distributed.barrier()
        finally:
            done.set()
    done.wait()
    os._exit(0)


if __name__ == "__main__":
    method = multiprocessing.get_context("fork")
    done = method.Event()
    with tempfile.TemporaryDirectory() as directory:
        ranks = [method.Process(target=rank, args=(n, f"{directory}/store", done)) for n in range(2)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
