"""What a doctor looks at: one file for each thing. A file dropped in here is a check; nothing else has to change."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from lastwords.prevent.checks._check import Check

__all__ = ["Check", "all_checks", "not_loaded"]


@cache
def _collected() -> tuple[tuple[Check, ...], tuple[str, ...]]:
    names = [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]
    loaded = [_load(name) for name in names]
    checks = sorted(
        (one for one in loaded if isinstance(one, Check)),
        key=lambda check: (check.begin is not None, check.id),
    )
    return tuple(checks), tuple(one for one in loaded if isinstance(one, str))


def _load(name: str) -> Check | str:
    """A broken file must not take the other checks along: it becomes a note."""
    try:
        found = vars(import_module(f"{__name__}.{name}")).get("CHECK")
    except Exception as error:  # noqa: BLE001  # it may fail in any way
        return f"{name}: {type(error).__name__}: {error}"
    return found if isinstance(found, Check) else f"{name}: it has no CHECK"


def all_checks() -> tuple[Check, ...]:
    return _collected()[0]


def not_loaded() -> tuple[str, ...]:
    """For maintainers: files of this package that failed to load, and why."""
    return _collected()[1]
