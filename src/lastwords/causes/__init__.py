"""Why processes die: one file for each cause. A file dropped in here is a cause; nothing else has to change."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from lastwords.causes.cause import SAID_ELSEWHERE, Cause, Facts, Reason, Step, Term

__all__ = [
    "SAID_ELSEWHERE",
    "Cause",
    "Facts",
    "Reason",
    "Step",
    "Term",
    "all_causes",
    "cause_named",
    "not_loaded",
]


@cache
def _collected() -> tuple[tuple[Cause, ...], tuple[str, ...]]:
    """Every module of this package that has a CAUSE, by id; and what could not be loaded."""
    loaded = [_load(found.name) for found in pkgutil.iter_modules(__path__)]
    causes = sorted((one for one in loaded if isinstance(one, Cause)), key=lambda cause: cause.id)
    return tuple(causes), tuple(one for one in loaded if isinstance(one, str))


def _load(name: str) -> Cause | str | None:
    """A broken file must not take the other causes along: it becomes a note."""
    try:
        cause = vars(import_module(f"{__name__}.{name}")).get("CAUSE")
    except Exception as error:  # noqa: BLE001  # it may fail in any way
        return f"{name}: {type(error).__name__}: {error}"
    return cause if isinstance(cause, Cause) else None


def all_causes() -> tuple[Cause, ...]:
    return _collected()[0]


def not_loaded() -> tuple[str, ...]:
    """For maintainers: files of this package that failed to load, and why."""
    return _collected()[1]


def cause_named(name: str) -> Cause | None:
    return next((cause for cause in all_causes() if cause.id == name), None)
