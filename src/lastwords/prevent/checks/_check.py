"""A check in two halves: one asks the machine, the other judges what it was told, and can be tested without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lastwords.prevent.finding import Finding
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    title: str
    """What is looked at, in a few words."""
    measure: Callable[[Patient], Any]
    """Asks. None: it cannot be known here, and nothing is said."""
    judge: Callable[[Any, Job], Iterable[Finding]]
    """Pure: no file, no clock."""
    begin: Callable[[Patient], object] | None = None
    """For one that takes long: what goes on beside the other checks. It is measured after them."""
