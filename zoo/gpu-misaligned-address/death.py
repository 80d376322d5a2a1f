"""A kernel writes four numbers at once where that many must not begin."""

import torch

SOURCE = """
extern "C" __global__ void write(float* out, int at) { *(float4*) (out + at) = make_float4(1, 2, 3, 4); }
"""


def die(item: int) -> float:
    out = torch.zeros(64, device="cuda")
    write = torch.cuda._compile_kernel(SOURCE, "write")
    write(grid=(1, 1, 1), block=(1, 1, 1), args=(out, item))
    return out.sum().item()
