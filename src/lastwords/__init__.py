"""lastwords: why did my Python worker die?

Importing this package must stay as light as importing nothing: it happens in every worker of a recorded
job. Everything below is loaded when it is first asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it; importing typing itself would cost every worker two milliseconds
if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis
    from lastwords.diagnosis.explain import explain
    from lastwords.prevent.require import Unfit, require
    from lastwords.record.items import each, item
    from lastwords.record.session import enable
    from lastwords.survive.executor import ProcessPoolExecutor
    from lastwords.survive.policy import Policy, WorkerDied

__all__ = [
    "Diagnosis",
    "Policy",
    "ProcessPoolExecutor",
    "Unfit",
    "WorkerDied",
    "each",
    "enable",
    "explain",
    "item",
    "require",
]

_HOME_OF = {
    "Diagnosis": "lastwords.diagnosis",
    "Policy": "lastwords.survive.policy",
    "ProcessPoolExecutor": "lastwords.survive.executor",
    "WorkerDied": "lastwords.survive.policy",
    "each": "lastwords.record.items",
    "enable": "lastwords.record.session",
    "explain": "lastwords.diagnosis",
    "item": "lastwords.record.items",
    "Unfit": "lastwords.prevent.require",
    "require": "lastwords.prevent.require",
}


def __getattr__(name: str) -> object:
    if name == "_native":
        # `from lastwords import _native` asks here first, and only then imports: the last moment to say no.
        from lastwords.record.native_needs import check

        check()
    if name == "torch":
        import lastwords.torch

        return lastwords.torch
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
