"""The GPUs of this machine, asked through NVIDIA's own library where its driver is installed. Nothing else is needed.

Asked by the thread that explains: the library's first answer can take a second on a machine whose driver sleeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass
from functools import cache

DRIVER = "/dev/nvidiactl"
LIBRARY = "libnvidia-ml.so.1"
MOST_GPUS = 64
# nvml.h
SUCCESS = 0
TEMPERATURE_GPU = 0
UNCORRECTED, SINCE_THE_DRIVER_WAS_LOADED = 1, 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes. None: this one does not say."""

    index: int
    name: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    busy: float | None = None
    """Part of the last moments in which it computed."""
    temperature: int | None = None
    uncorrected_errors: int | None = None
    """Of its memory, since the driver was loaded."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def look() -> tuple[Gpu, ...] | None:
    """None: there is no such driver here, or it does not answer."""
    library = _library()
    if library is None:
        return None
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != SUCCESS:
        return None
    return tuple(_gpu(library, index) for index in range(min(count.value, MOST_GPUS)))


@cache
def _library() -> ctypes.CDLL | None:
    if not os.path.exists(DRIVER):
        return None
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(LIBRARY)
        if library.nvmlInit_v2() == SUCCESS:
            return library
    return None


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != SUCCESS:
        return Gpu(index)  # It fell off the bus, or is not ours to see.
    name, memory, used = ctypes.create_string_buffer(96), _Memory(), _Utilization()
    heat, errors = ctypes.c_uint(), ctypes.c_ulonglong()
    has_name = library.nvmlDeviceGetName(handle, name, len(name)) == SUCCESS
    has_memory = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == SUCCESS
    has_use = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(used)) == SUCCESS
    has_heat = library.nvmlDeviceGetTemperature(handle, TEMPERATURE_GPU, ctypes.byref(heat)) == SUCCESS
    has_errors = (
        library.nvmlDeviceGetTotalEccErrors(
            handle, UNCORRECTED, SINCE_THE_DRIVER_WAS_LOADED, ctypes.byref(errors)
        )
        == SUCCESS
    )
    return Gpu(
        index=index,
        name=name.value.decode("utf-8", "replace") if has_name else None,
        memory_total=memory.total if has_memory else None,
        memory_used=memory.used if has_memory else None,
        busy=used.gpu / 100 if has_use else None,
        temperature=heat.value if has_heat else None,
        uncorrected_errors=errors.value if has_errors else None,
    )
