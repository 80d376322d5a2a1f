"""Pickles whose large buffers travel through shared memory, and exceptions that keep their traceback."""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LARGE = 32 << 10
"""Bytes from which a buffer gets a block of its own; below, copying it twice is cheaper than a block's upkeep."""

REDUCERS: dict[type, Callable[[Any], Any]] = {}
"""How to pickle a type here, before copyreg and multiprocessing are asked: see `register`."""


def register(kind: type, reduce: Callable[[Any], Any]) -> None:
    """For types that know nothing of out-of-band buffers: `reduce` may return a PickleBuffer among its arguments."""
    REDUCERS[kind] = reduce


loads = pickle.loads
"""What the two ends exchange is as trusted as they are: one is the other's child, and memory and pipes are theirs alone."""

NO_BLOCKS: list[tuple[int, int]] = []


class NoRoom(Exception):
    """There is no block for a large buffer at the moment."""


class Packer:
    """Pickles values. `place` makes a block for a large buffer, or raises NoRoom; `forget` gives one back."""

    def __init__(
        self, place: Callable[[memoryview], tuple[int, int]], forget: Callable[[int], object]
    ) -> None:
        self._place = place
        self._forget = forget
        self._blocks: list[tuple[int, int]] = []

    def __call__(self, value: object) -> tuple[bytes, list[tuple[int, int]]]:
        """The pickle, and the blocks with its large buffers. If it raises, it has left no block behind."""
        if REDUCERS:
            return self._with_reducers(value)
        try:
            data = pickle.dumps(value, 5, buffer_callback=self._keep_inside)
            return data, self._take_blocks() if self._blocks else NO_BLOCKS
        except NoRoom:
            self._forget_blocks()
            raise
        except Exception:  # noqa: BLE001  # whatever a class raises; sockets know how to travel only this way
            self._forget_blocks()
            return self._with_reducers(value)

    def _with_reducers(self, value: object) -> tuple[bytes, list[tuple[int, int]]]:
        try:
            return _dumps_with_reducers(value, self._keep_inside), self._take_blocks()
        except BaseException:
            self._forget_blocks()
            raise

    def _take_blocks(self) -> list[tuple[int, int]]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def _forget_blocks(self) -> None:
        for at, _ in self._take_blocks():
            self._forget(at)

    def _keep_inside(self, buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < LARGE:
                return True
            self._blocks.append(self._place(raw))
            return False


def _dumps_with_reducers(value: object, keep_inside: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    from multiprocessing.reduction import ForkingPickler

    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5, buffer_callback=keep_inside)
    pickler.dispatch_table = {
        **copyreg.dispatch_table,
        **ForkingPickler._extra_reducers,  # type: ignore[attr-defined]  # noqa: SLF001  # as its own pickler does
        **REDUCERS,
    }
    pickler.dump(value)
    return stream.getvalue()


class Failed:
    """Among the results of items: what one of them raised, as `dump_exception` has it."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def dump_exception(error: BaseException) -> bytes:
    """With its traceback as text. One that cannot be pickled is replaced by one that names it."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = f'\n"""\n{text}"""'
    error.__traceback__ = None
    try:
        return pickle.dumps((error, text), 5)
    except Exception as refused:  # noqa: BLE001  # whatever __reduce__ raises
        words = f"{_name(error)} was raised, and cannot be sent back: {_words(refused)}: {_shown(error)}"
        return pickle.dumps((pickle.PicklingError(words), text), 5)


def load_exception(data: bytes) -> BaseException:
    try:
        error, text = loads(data)
        if not isinstance(error, BaseException):
            raise TypeError(f"{_name(error)} is no exception")
    except Exception as refused:  # noqa: BLE001  # whatever __setstate__ or __init__ raises
        kind, text = _class_in(data), None
        error = pickle.UnpicklingError(
            f"{kind} was raised in a worker, and cannot be read back: {_words(refused)}"
        )
        error.__cause__ = refused
    if text is not None:
        # Private to the standard library, and what tools know that show tracebacks of workers.
        from concurrent.futures.process import _RemoteTraceback

        error.__cause__ = _RemoteTraceback(text)
    assert isinstance(error, BaseException)
    return error


def named(what: str, error: BaseException) -> pickle.PicklingError:
    """The failure of one task's own data, with the class that refused and the original behind it."""
    failure = pickle.PicklingError(f"{what}: {_words(error)}")
    failure.__cause__ = error
    return failure


def _class_in(data: bytes) -> str:
    """The first class that a pickle names, without loading it."""
    import pickletools

    strings: list[str] = []
    # No pickle at all comes from a worker that has written over its own memory.
    with contextlib.suppress(ValueError):
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE") and isinstance(argument, str):
                strings.append(argument)
            elif opcode.name == "STACK_GLOBAL" and len(strings) >= 2:
                return ".".join(strings[-2:])
    return "an exception"


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _words(error: BaseException) -> str:
    return f"{_name(error)}: {_shown(error)}"


def _shown(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a broken __str__ must not hide the rest
        return "<its text cannot be shown>"


def is_large(data: bytes) -> bool:
    return len(data) >= LARGE


__all__ = [
    "Failed",
    "NoRoom",
    "Packer",
    "dump_exception",
    "is_large",
    "load_exception",
    "loads",
    "named",
    "register",
]
