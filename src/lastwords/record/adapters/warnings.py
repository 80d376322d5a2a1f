"""warnings: the last ones a process showed. A library often warns before it dies."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native


def adapt(module: ModuleType) -> None:
    show = module._showwarnmsg_impl

    @functools.wraps(show)
    def _showwarnmsg_impl(message: Any) -> None:
        _native.warned(f"{message.category.__name__}: {message.message}")
        show(message)

    module._showwarnmsg_impl = _showwarnmsg_impl  # type: ignore[attr-defined]
