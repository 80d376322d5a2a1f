"""Why processes die: one file for each cause. A file dropped in here is a cause; nothing else has to change."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from lastwords.causes.cause import SAID_ELSEWHERE, Cause, Facts, Reason, Step, Term

__all__ = ["SAID_ELSEWHERE", "Cause", "Facts", "Reason", "Step", "Term", "all_causes", "cause_named"]


@cache
def all_causes() -> tuple[Cause, ...]:
    """Every module of this package that has a CAUSE, by id."""
    modules = (import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    causes = (vars(module).get("CAUSE") for module in modules)
    return tuple(sorted((cause for cause in causes if isinstance(cause, Cause)), key=lambda cause: cause.id))


def cause_named(name: str) -> Cause | None:
    return next((cause for cause in all_causes() if cause.id == name), None)
