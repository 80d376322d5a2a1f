"""A kernel writes a gigabyte behind its tensor, and more."""

import torch

SOURCE = """
extern "C" __global__ void scatter(float* out, int gigabytes) { out[(long long) gigabytes << 30] = 1.0f; }
"""


def die(item: int) -> float:
    out = torch.zeros(4, device="cuda")
    scatter = torch.cuda._compile_kernel(SOURCE, "scatter")
    scatter(grid=(1, 1, 1), block=(1, 1, 1), args=(out, item << 10))
    return out.sum().item()
