"""A token id that the embedding has no row for: the kernel checks it, and the line after it is told."""

import torch
from torch.nn.functional import embedding


def die(item: int) -> float:
    table = torch.zeros(item, 8, device="cuda")
    return embedding(torch.tensor([item], device="cuda"), table).sum().item()
