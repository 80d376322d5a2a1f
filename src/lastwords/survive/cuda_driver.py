"""The few calls of the CUDA driver that make memory known to the GPU, and tell when the GPU is done with it.

Of the driver, not of the runtime that torch uses: a call of the runtime from a thread that has not chosen a device
makes a context on the first one, half a gigabyte there that nobody asked for. Here each call names its context.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator

LIBRARY = "libcuda.so.1"
PORTABLE = 1
"""Known in the contexts of all GPUs, not in the one alone that it was registered in."""
WITHOUT_TIME = 2
NOT_READY = 600

_HANDLE, _OUT = ctypes.c_void_p, ctypes.c_void_p
_ARGUMENTS = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (_OUT,),
    "cuDeviceGet": (_OUT, ctypes.c_int),
    "cuDevicePrimaryCtxGetState": (ctypes.c_int, _OUT, _OUT),
    "cuDevicePrimaryCtxRetain": (_OUT, ctypes.c_int),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_OUT,),
    "cuCtxRecordEvent": (_HANDLE, _HANDLE),
    "cuEventCreate": (_OUT, ctypes.c_uint),
    "cuEventQuery": (_HANDLE,),
    "cuMemHostRegister_v2": (_HANDLE, ctypes.c_size_t, ctypes.c_uint),
    "cuMemHostUnregister": (_HANDLE,),
    "cuGetErrorName": (ctypes.c_int, _OUT),
}

Moment = list[tuple[int, int]]
"""Of all GPUs in use: the number of each, and an event there that comes after all that it was told before."""


class CudaError(Exception):
    """What the driver refused, and the name of its reason."""


def process_driver() -> CudaDriver:
    """One for all loaders. A fork has none of its parent's: there is no use of a GPU in it."""
    if os.getpid() not in _drivers:
        _drivers[os.getpid()] = CudaDriver()
    return _drivers[os.getpid()]


class CudaDriver:
    """Raises CudaError where there is no driver, or one that is too old. It has asked nothing of a GPU by then."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
            for name, arguments in _ARGUMENTS.items():
                getattr(self._library, name).argtypes = arguments
        except OSError:
            raise CudaError(f"{LIBRARY} is not there") from None
        except AttributeError as missing:
            # cuCtxRecordEvent came with CUDA 12.5: no older call sees the work of streams that we do not know.
            raise CudaError(f"the CUDA driver is too old (before 555): {missing}") from None
        self._contexts: dict[int, int] = {}
        self._events: dict[int, list[int]] = {}

    def try_out(self) -> None:
        """Raises CudaError where memory that processes share cannot be registered, in some sandboxes, say.

        A GPU may be used for the first time by this.
        """
        import torch

        try:
            torch.empty(1, pin_memory=True)  # torch chooses the GPU, as it would for its own thread
        except RuntimeError as error:
            raise CudaError(str(error).partition("\n")[0]) from error
        self._call("cuInit", 0)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            here = ctypes.c_char.from_buffer(page)
            self.register(ctypes.addressof(here), mmap.PAGESIZE)
            self.unregister(ctypes.addressof(here))
            del here

    # Memory

    def register(self, address: int, length: int) -> None:
        with self._any_context():
            self._call("cuMemHostRegister_v2", address, length, PORTABLE)

    def unregister(self, address: int) -> None:
        with self._any_context():
            self._call("cuMemHostUnregister", address)

    # Time

    def record(self) -> Moment | None:
        """Now: after all work that any stream of any GPU was given so far. None: not at present."""
        moment: Moment = []
        try:
            for number, context in self._current_contexts().items():
                event = self._take_event(number)
                moment.append((number, event))
                self._call("cuCtxRecordEvent", context, event)
        except CudaError:  # a graph is being captured by another thread, or the GPU has failed
            self._keep_events(moment)
            return None
        return moment

    def is_over(self, moment: Moment) -> bool:
        """A GPU that has failed works on nothing any more. Not to be asked again once it is True."""
        if any(self._library.cuEventQuery(event) == NOT_READY for _, event in moment):
            return False
        self._keep_events(moment)
        return True

    def is_capturing(self) -> bool:
        """Most calls would spoil the graph that this thread captures. True also of a GPU that has failed: its error is for
        the user's own next call, and there is nothing to be done any more.
        """
        import torch

        try:
            # On a GPU that is not in use, torch's question would make a context.
            is_in_use = torch.cuda.current_device() in self._current_contexts()
            return is_in_use and bool(torch.cuda.is_current_stream_capturing())
        except (CudaError, RuntimeError):
            return True

    def _take_event(self, number: int) -> int:
        spare = self._events.setdefault(number, [])
        if spare:
            return spare.pop()
        event = ctypes.c_void_p()
        with self._pushed(self._contexts[number]):
            self._call("cuEventCreate", ctypes.byref(event), WITHOUT_TIME)
        assert event.value is not None
        return event.value

    def _keep_events(self, moment: Moment) -> None:
        for number, event in moment:
            self._events[number].append(event)

    # Contexts. They are the process's own and never given back: torch keeps them to the end as well.

    def _current_contexts(self) -> dict[int, int]:
        """Of GPUs that are in use by now; one that is not shall not be because of us."""
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for number in range(count.value):
            if number not in self._contexts:
                self._find_context(number)
        return self._contexts

    def _find_context(self, number: int) -> None:
        device, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        self._call("cuDevicePrimaryCtxGetState", device.value, ctypes.byref(flags), ctypes.byref(is_active))
        if is_active.value:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device.value)
            assert context.value is not None
            self._contexts[number] = context.value

    def _any_context(self) -> contextlib.AbstractContextManager[None]:
        contexts = self._current_contexts()
        if not contexts:
            raise CudaError("no GPU is in use")
        return self._pushed(next(iter(contexts.values())))

    @contextlib.contextmanager
    def _pushed(self, context: int) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            before = ctypes.c_void_p()
            self._call("cuCtxPopCurrent_v2", ctypes.byref(before))

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"{name}: {text.value.decode() if text.value else code}")


_drivers: dict[int, CudaDriver] = {}
