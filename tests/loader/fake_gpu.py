"""A GPU for machines without one: it checks what it is told, and reads memory late, as a real one does."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

import torch

from lastwords.survive.cuda_driver import CudaError

MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-s .*memfd:", re.MULTILINE)


class FakeGpu:
    """In the place of `CudaDriver`. `delay`: how often it is asked before it has done what it was told."""

    def __init__(self, delay: int = 0, refuses: Callable[[int], bool] = lambda count: False) -> None:
        self.registered: dict[int, int] = {}
        self.registrations = self.copied = 0
        self.is_busy_with_a_graph = False
        self._delay = delay
        self._refuses = refuses
        self._copies: list[tuple[int, bytes]] = []
        self._asked: dict[int, int] = {}
        self._moments: dict[int, list[tuple[int, bytes]]] = {}

    def try_out(self) -> None:
        self._refuse()

    def register(self, address: int, length: int) -> None:
        self._refuse()
        self.registrations += 1
        assert length > 0 and address % 4096 == length % 4096 == 0
        assert is_mapped(address, length)
        for other, its_length in self.registered.items():
            assert address + length <= other or other + its_length <= address, "registered twice"
        self.registered[address] = length

    def unregister(self, address: int) -> None:
        assert is_mapped(address, self.registered.pop(address)), "unmapped before it was unregistered"

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        return any(begin <= first and last <= begin + length for begin, length in self.registered.items())

    def copy(self, tensor: torch.Tensor) -> None:
        """As `.to("cuda", non_blocking=True)`: it reads the memory at some later time."""
        content = ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
        self._copies.append((tensor.data_ptr(), content))

    def record(self) -> int:
        moment = len(self._moments)
        self._moments[moment], self._copies = self._copies, []
        self._asked[moment] = 0
        return moment

    def is_over(self, moment: int) -> bool:
        self._asked[moment] += 1
        if self._asked[moment] <= self._delay:
            return False
        for address, content in self._moments.pop(moment):
            assert ctypes.string_at(address, len(content)) == content, "written before the GPU had read it"
            self.copied += 1
        self._moments[moment] = []
        return True

    def is_capturing(self) -> bool:
        return self.is_busy_with_a_graph

    def _refuse(self) -> None:
        assert not self.is_busy_with_a_graph
        if self._refuses(self.registrations):
            raise CudaError("cuMemHostRegister_v2: CUDA_ERROR_OUT_OF_MEMORY")


def is_mapped(address: int, length: int) -> bool:
    maps = Path(f"/proc/{os.getpid()}/maps").read_text()
    return any(
        int(begin, 16) <= address and address + length <= int(end, 16) for begin, end in MAPPED.findall(maps)
    )
