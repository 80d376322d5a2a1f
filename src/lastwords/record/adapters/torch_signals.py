"""torch.utils.data: its workers install their own SIGSEGV, SIGBUS and SIGFPE handlers when they start.

They chain to nothing and end in `raise()`, which loses the fault's address (torch/csrc/DataLoader.cpp).
"""

from __future__ import annotations

from types import ModuleType

from lastwords import _native


def adapt(module: ModuleType) -> None:
    install = _native.behind_us(module._set_worker_signal_handlers)

    def _set_worker_signal_handlers() -> None:
        _native.describe(role="DataLoader worker")
        install()

    module._set_worker_signal_handlers = _set_worker_signal_handlers  # type: ignore[attr-defined]
