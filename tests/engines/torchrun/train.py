"""A training job: its last rank ends on its fourth batch as the command line says, each attempt in its own way."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

sys.path.append(str(Path(__file__).resolve().parents[1] / "victims"))
from deaths import die


def main(hows: list[str], *, is_alone: bool) -> None:
    how = hows[int(os.environ["TORCHELASTIC_RESTART_COUNT"])]
    is_victim = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    if not is_alone:
        # A rank may start much later than the other on a busy machine; only who is to be waited for in vain has a limit.
        dist.init_process_group("gloo", timeout=timedelta(seconds=10 if how == "hang" else 300))
    for number, _ in enumerate(DataLoader(range(64), batch_size=8)):
        if is_victim and number == 3:
            die(how)
        if not is_alone:
            dist.all_reduce(torch.ones(1))


main(sys.argv[1].split(","), is_alone=sys.argv[2:] == ["alone"])
