"""The state of a worker's random numbers: taken after each batch, so that a replacement goes on where it died.

Taking all three states the official way costs 100 microseconds a batch, as much as a small batch itself. A look at their
memory costs one or two, and says whether the official way is needed at all.
"""

# ruff: noqa: SLF001  # neither random nor numpy has a public name for where its state lies

from __future__ import annotations

import contextlib
import functools
import random
import struct
import sys
from base64 import b64decode, b64encode
from typing import Any

import torch

from lastwords import recording

Snapshot = tuple[Any, Any, bytes]
"""Of `random`, of numpy's global generator (None: numpy is not loaded), of torch."""
Changes = tuple[Any, Any, bytes | None]
"""The same, with None for what is as it was."""

WORDS = 624
MERSENNE_BYTES = 4 * (WORDS + 1)
# CPython's RandomObject: the object's header, then `int index; uint32_t state[624]`. Checked before it is relied on.
PYTHON_STATE_AT = object.__basicsize__


def load_before_fork() -> None:
    """Each worker seeds numpy's generator, which numpy loads when it is first asked for: 20 ms, once and not in each."""
    with contextlib.suppress(ImportError):
        import numpy.random  # noqa: F401


class Watch:
    """Tells what has changed since it was last asked."""

    def __init__(self) -> None:
        self._python, self._numpy, self._torch = _Python(), _Numpy(), _Torch()
        self._last: Snapshot = (self._python.state, self._numpy.state, self._torch.state)

    @property
    def snapshot(self) -> Snapshot:
        return self._last

    def changes(self) -> Changes | None:
        """None: nothing has."""
        python, numpy, own = self._python.change(), self._numpy.change(), self._torch.change()
        if python is None and numpy is None and own is None:
            return None
        changes = python, numpy, own
        self._last = merged(self._last, changes)
        return changes


# Each knows the state that it was last asked for (`state`), and gives the new one if that is another (`change`).


class _Python:
    def __init__(self) -> None:
        self._generator: Any = random._inst
        self._address = id(self._generator) + PYTHON_STATE_AT
        self._kept: recording.KeptMemory | None = None
        self.state: Any = random.getstate()
        if type(self._generator) is random.Random:
            kept = recording.KeptMemory(self._address, MERSENNE_BYTES)
            raw = kept.data, self._generator.gauss_next  # type: ignore[attr-defined]  # typeshed does not know it
            if _python_state(raw) == self.state:  # it lies where we think
                self._kept, self.state = kept, raw

    def change(self) -> Any:
        if self._kept is not None:
            gauss = self._generator.gauss_next
            if not self._kept.look(self._address) and gauss == self.state[1]:
                return None
            now: Any = (self._kept.data, gauss)
        elif (now := random.getstate()) == self.state:
            return None
        self.state = now
        return now


class _Numpy:
    """numpy's global generator."""

    def __init__(self) -> None:
        self._generator: Any = None
        self._kept: recording.KeptMemory | None = None
        self._address = 0
        self.state: Any = None
        self.change()

    def change(self) -> Any:
        numpy = sys.modules.get("numpy.random")
        if numpy is None:
            return None
        generator = numpy.mtrand._rand._bit_generator
        if generator is not self._generator:
            self._watch(generator)
        # A normal number that numpy keeps for the next call is not in its memory, but can only go if it was there.
        elif self._kept is not None and not self._kept.look(self._address) and not self.state[3]:
            return None
        kind, key, *rest = numpy.get_state()
        now = (kind, key.tobytes(), *rest)
        if now == self.state:
            return None
        self.state = now
        return now

    def _watch(self, generator: Any) -> None:
        self._generator, self._kept = generator, None
        if type(generator).__name__ == "MT19937":
            self._address = generator.ctypes.state_address
            self._kept = recording.KeptMemory(self._address, MERSENNE_BYTES)


class _Torch:
    def __init__(self) -> None:
        state = torch.default_generator.get_state()
        self._kept = recording.KeptMemory(state.data_ptr(), state.nbytes)
        self.state: bytes = self._kept.data

    def change(self) -> bytes | None:
        now = torch.default_generator.get_state()
        if not self._kept.look(now.data_ptr()):
            return None
        self.state = self._kept.data
        return self.state


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


def generator_state(generator: Any) -> bytes:
    state = generator.get_state()
    return recording.KeptMemory(state.data_ptr(), state.nbytes).data


def restore_generator(generator: Any, state: bytes) -> None:
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


# As JSON and every other format can keep it. Some frameworks save all of it at every step, and a step changes that of
# one worker.


@functools.lru_cache(maxsize=128)
def text(state: bytes) -> str:
    return b64encode(state).decode("ascii")


def of_text(saved: str) -> bytes:
    return b64decode(saved, validate=True)


def as_saved(snapshot: Snapshot) -> list[Any]:
    python, numpy, own = snapshot
    return [
        [text(python[0]), python[1]] if len(python) == 2 else python,
        None if numpy is None else [numpy[0], text(numpy[1]), *numpy[2:]],
        text(own),
    ]


def of_saved(saved: list[Any]) -> Snapshot:
    python, numpy, own = saved
    return (
        (of_text(python[0]), python[1]) if len(python) == 2 else (python[0], tuple(python[1]), python[2]),
        None if numpy is None else (numpy[0], of_text(numpy[1]), *numpy[2:]),
        of_text(own),
    )


def _python_state(state: Any) -> Any:
    """As `random.setstate` wants it."""
    if len(state) == 3:
        return state
    raw, gauss = state
    index, *words = struct.unpack(f"{WORDS + 1}I", raw)
    return 3, (*words, index), gauss
