"""Python frames in a native crash, with CPython's own writer.

faulthandler can dump every thread's frames from inside a signal handler, in every Python version that we
support and with no private symbol: `faulthandler.register` installs a C function that dumps and returns
(unlike the one of `faulthandler.enable`, which ends in `raise()`). The crash handler borrows that function;
the signal it was registered for is given back at once.
"""

from __future__ import annotations

import _signal  # and not signal, whose enums take a millisecond to make
import faulthandler

from lastwords import _native


def adopt() -> bool:
    """Hands faulthandler's dump function to the crash handler. False: frames will be missing."""
    descriptor = _native.text_descriptor()
    if descriptor is None:
        return False
    number = _unused_signal()
    if number is None:
        return False
    _show_trampoline(number)
    faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    return _native.adopt_python_dumper(number)


def _unused_signal() -> int | None:
    """A real-time signal nobody listens to, from the top: the first ones are glibc's and popular."""
    for number in range(_signal.SIGRTMAX - 1, _signal.SIGRTMIN, -1):
        if _signal.getsignal(number) is _signal.SIG_DFL:
            return number
    return None


def _show_trampoline(number: int) -> None:
    """Shows the native side which C function stands behind handlers set with `signal.signal`."""
    try:
        _signal.signal(number, lambda *_: None)
    except ValueError:
        return  # only the main thread may ask
    _native.adopt_python_trampoline(number)
    _signal.signal(number, _signal.SIG_DFL)
