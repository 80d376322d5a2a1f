"""How sure we are: the one place where reasons become a number."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lastwords.causes import Term

CLAIMED = 0.5
"""From here on a cause counts as named; below it the honest answer is that none is."""
LISTED = 0.05
"""Causes below this are answers to "why not?", and are not listed by themselves."""


def confidence(prior: float, terms: Iterable[Term]) -> float:
    """The probability that goes with the sum of log-odds."""
    odds = prior + math.fsum(term.weight for term in terms)
    return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, odds))))
