"""warnings: the last ones a process showed. A library often warns before it dies."""

from __future__ import annotations

from types import ModuleType

from lastwords import _native


def adapt(module: ModuleType) -> None:
    module._showwarnmsg_impl = _native.noted_warning(module._showwarnmsg_impl)  # type: ignore[attr-defined]
