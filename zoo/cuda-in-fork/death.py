"""The job has used the GPU, and a worker that it forks wants to use it, too."""

import torch

torch.zeros(1, device="cuda")


def die(item: int) -> None:
    torch.full((4,), item, device="cuda")
