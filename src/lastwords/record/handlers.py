"""Staying in front of other signal handlers.

Whoever installs a handler after us would be called first, and most end the process in a way that loses the
fault's address. So the known ones are called with us out of the way, and then we step in front again.
pyspark calls `faulthandler.disable()`, which would otherwise drop us from the chain. Handlers that libraries
install from C are found before the next item (see `refresh_if_due` in the handler).
"""

from __future__ import annotations

import _signal
import faulthandler

from lastwords import _native


def stay_in_front() -> None:
    for module, name in ((faulthandler, "enable"), (faulthandler, "disable"), (_signal, "signal")):
        setattr(module, name, _native.behind_us(getattr(module, name)))
