"""Sizes and durations as people say them."""

from __future__ import annotations

UNITS = ("bytes", "KB", "MB", "GB", "TB")


def size(number: int) -> str:
    value, unit = float(number), 0
    while abs(value) >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 100 else 1
    return f"{value:.{digits}f} {UNITS[unit]}"


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
