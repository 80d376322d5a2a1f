"""Sizes as people write them. Standard library alone: `lastwords.require` uses it inside jobs."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(I?)B?(?:YTES?)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


class NotASize(ValueError):
    def __init__(self, text: object) -> None:
        super().__init__(f"{text!r} is no size: write it like 8GB, 64MiB or 1000000")


def parse(size: object) -> int:
    """`8GB` is 8·10⁹ bytes and `8GiB` 8·2³⁰. Raises NotASize."""
    if isinstance(size, (int, float)):
        return int(number(size))
    found = _SIZE.fullmatch(size) if isinstance(size, str) and len(size) < 64 else None
    if found is None or (found[3] and not found[2]):
        raise NotASize(size)
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].upper()])


def number(given: object) -> float:
    """A count that makes sense: neither negative, nor infinite, nor True. Raises NotASize."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < float("inf"):
        raise NotASize(given)
    return given


def words(number: float) -> str:
    """`64 MiB` where somebody set it so, else powers of ten, as disks and networks have it."""
    for name, power in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if number >= power and number % power == 0:
            return f"{number // power:.0f} {name}"
    value, unit = float(number), 0
    while abs(value) >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 100 else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"
