"""Naming what a process is working on."""

from __future__ import annotations

from lastwords import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

IDLE, FETCH, TRANSFORM, COLLATE, SEND, RUN, LOAD = range(7)

_LONGEST_ARGUMENT = 40
_MOST_ARGUMENTS = 4


class item:  # noqa: N801  # used as `with lastwords.item(...)`
    """Says what the code inside works on; a death in it is then a death "on item KEY"."""

    __slots__ = ("_index", "_key")

    def __init__(self, key: object, index: int | None = None) -> None:
        self._key = str(key)
        self._index = index

    def __enter__(self) -> None:
        _native.begin(self._index, self._key, RUN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            from lastwords.record.endings import record_exception

            record_exception(error)
        _native.end()


_last_called: object = None


def note_called(function: object) -> None:
    """Notes where the function begins that items are handed to; once, as long as it stays the same."""
    global _last_called
    if function is _last_called:
        return
    _last_called = function
    code = getattr(_unwrapped(function), "__code__", None)
    if code is not None:
        _native.calls(f"{code.co_filename}:{code.co_firstlineno} {code.co_name}")


def describe_call(function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """`work(5, path='a.png')`: a call as one short line, whatever its arguments are."""
    parts = [_short(value) for value in args[:_MOST_ARGUMENTS]]
    room = _MOST_ARGUMENTS - len(parts)
    parts += [f"{name}={_short(value)}" for name, value in list(kwargs.items())[:room]]
    if len(args) + len(kwargs) > len(parts):
        parts.append("…")
    return f"{_name(function)}({', '.join(parts)})"


def _unwrapped(function: object) -> object:
    inner: object = getattr(function, "func", None)
    return _unwrapped(inner) if callable(inner) else function  # functools.partial


def _name(function: object) -> str:
    function = _unwrapped(function)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _short(value: object) -> str:
    """A bounded repr. Large things are named by their type: the repr of a tensor can take seconds."""
    if isinstance(value, (int, float, bool, type(None))):
        return repr(value)
    if isinstance(value, (str, bytes)):
        text = repr(value[:_LONGEST_ARGUMENT])
        return text if len(value) <= _LONGEST_ARGUMENT else f"{text[:-1]}…{text[-1]}"
    if isinstance(value, (tuple, list)) and len(value) <= _MOST_ARGUMENTS:
        inner = ", ".join(_short(part) for part in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return f"<{type(value).__qualname__}>"
