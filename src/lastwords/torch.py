"""lastwords for torch: `from lastwords.torch import DataLoader` instead of torch's own is the whole change."""

from __future__ import annotations

from lastwords.survive.loader import DataLoader, surviving_iterator

__all__ = ["DataLoader", "surviving_iterator"]
