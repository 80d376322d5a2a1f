"""Sizes, durations and times as people say them."""

from __future__ import annotations

from datetime import datetime, timezone

from lastwords.evidence.quantities import duration, size

__all__ = ["duration", "size", "utc"]


def utc(time: float | None) -> str | None:
    """ISO 8601, to the millisecond; None for a time that no calendar has."""
    if time is None:
        return None
    try:
        moment = datetime.fromtimestamp(time, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
