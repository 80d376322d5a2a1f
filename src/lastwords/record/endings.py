"""How a process comes to its end, as far as Python itself knows: exceptions, kills, an orderly exit."""

from __future__ import annotations

import sys

from lastwords import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_MOST_FRAMES = 32


def record_exception(error: BaseException, fatal: bool = False) -> None:
    """Writes an exception with its frames, innermost first, beside the item it happened on."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as unprintable:
        message = f"<its text cannot be shown: {type(unprintable).__name__}>"
    _native.exception(name, message, _frames(error.__traceback__), fatal)


def _frames(traceback: TracebackType | None) -> list[tuple[str, int, str]]:
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append((code.co_filename, traceback.tb_lineno or 0, code.co_name))
        traceback = traceback.tb_next
    return frames[::-1][:_MOST_FRAMES]


def at_exit() -> None:
    """The interpreter shuts down in order. An exception that nothing caught was printed just before.

    Read from `sys.last_value` and not through `sys.excepthook`: rich, IPython and torch replace the hook.
    """
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        record_exception(error, fatal=True)
        _native.say_exit(1)
    else:
        _native.say_exit(None)
