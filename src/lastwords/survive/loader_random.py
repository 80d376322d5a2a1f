"""The state of a worker's random numbers: taken after each batch, so that a replacement goes on where it died.

Taking all three states the official way costs 100 microseconds a batch, as much as a small batch itself. Their raw
memory costs one or two, and says whether the official way is needed at all.
"""

# ruff: noqa: SLF001  # neither random nor numpy has a public name for where its state lies

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import Any

import torch

Snapshot = tuple[Any, Any, bytes]
"""Of `random`, of numpy's global generator (None: numpy is not loaded), of torch."""
Changes = tuple[Any, Any, bytes | None]
"""The same, with None for what is as it was."""

WORDS = 624
MERSENNE_BYTES = 4 * (WORDS + 1)
# CPython's RandomObject: the object's header, then `int index; uint32_t state[624]`. Checked before it is relied on.
PYTHON_STATE_AT = object.__basicsize__


class Watch:
    """Tells what has changed since it was last asked."""

    def __init__(self) -> None:
        self._python = _python_reader()
        self._numpy_raw: bytes | None = None
        self._numpy_full: Any = None
        self._last: Snapshot = (self._python(), self._numpy(), _torch_state())

    @property
    def snapshot(self) -> Snapshot:
        return self._last

    def changes(self) -> Changes | None:
        """None: nothing has."""
        before, now = self._last, (self._python(), self._numpy(), _torch_state())
        if now == before:
            return None
        self._last = now
        python, numpy, own = (None if new == old else new for new, old in zip(now, before, strict=True))
        return python, numpy, own

    def _numpy(self) -> Any:
        numpy = sys.modules.get("numpy.random")
        if numpy is None:
            return None
        raw = _numpy_raw(numpy)
        # A normal number that numpy keeps for the next call is not in the raw state, but can only go if it was there.
        if raw is None or raw != self._numpy_raw or self._numpy_full[3]:
            kind, key, *rest = numpy.get_state()
            self._numpy_full = (kind, key.tobytes(), *rest)
            self._numpy_raw = raw
        return self._numpy_full


def merged(before: Snapshot, changes: Changes | None) -> Snapshot:
    if changes is None:
        return before
    python, numpy, own = (old if new is None else new for new, old in zip(changes, before, strict=True))
    return python, numpy, own


def restore(snapshot: Snapshot) -> None:
    python, numpy, own = snapshot
    random.setstate(_python_state(python))
    if numpy is not None:
        from numpy import frombuffer, uint32
        from numpy.random import set_state

        kind, key, *rest = numpy
        set_state((kind, frombuffer(key, uint32), *rest))
    torch.set_rng_state(torch.frombuffer(bytearray(own), dtype=torch.uint8))


def _torch_state() -> bytes:
    return bytes(torch.default_generator.get_state().numpy().tobytes())


def _numpy_raw(numpy: Any) -> bytes | None:
    generator = numpy.mtrand._rand._bit_generator
    if type(generator).__name__ != "MT19937":
        return None
    return ctypes.string_at(generator.ctypes.state_address, MERSENNE_BYTES)


def _python_reader() -> Any:
    """A function that gives the state of `random`: its raw memory if that is where we think it is."""
    generator: Any = random._inst
    address = id(generator) + PYTHON_STATE_AT

    def raw() -> tuple[bytes, float | None]:
        return ctypes.string_at(address, MERSENNE_BYTES), generator.gauss_next

    if type(generator) is random.Random and _python_state(raw()) == random.getstate():
        return raw
    return random.getstate


def _python_state(state: Any) -> Any:
    """As `random.setstate` wants it."""
    if len(state) == 3:
        return state
    raw, gauss = state
    index, *words = struct.unpack(f"{WORDS + 1}I", raw)
    return 3, (*words, index), gauss
