"""The tensors fit, and cuBLAS finds no room for itself beside them."""

import torch

LEFT = 8 << 20
"""Bytes that are free when it is asked for the first product."""


def die(item: int) -> float:
    square = torch.ones(item, item, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    kept = [torch.empty(free - LEFT, dtype=torch.uint8, device="cuda")]
    return (square @ square).sum().item() + len(kept)
