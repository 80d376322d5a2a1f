"""Staying in front of other signal handlers.

Whoever installs a handler after us would be called first, and most end the process in a way that loses the
fault's address. So the known ones are called with us out of the way, and then we step in front again.
pyspark calls `faulthandler.disable()`, which would otherwise drop us from the chain.
"""

from __future__ import annotations

import faulthandler
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lastwords import _native

P = ParamSpec("P")
R = TypeVar("R")


def behind_us(install: Callable[P, R]) -> Callable[P, R]:
    """A function that installs or removes signal handlers, made to do so behind ours."""

    @functools.wraps(install)
    def installs_behind_us(*args: P.args, **kwargs: P.kwargs) -> R:
        _native.stand_aside()
        try:
            return install(*args, **kwargs)
        finally:
            _native.come_back()

    return installs_behind_us


def stay_in_front() -> None:
    faulthandler.enable = behind_us(faulthandler.enable)
    faulthandler.disable = behind_us(faulthandler.disable)
