"""lastwords for torch: `from lastwords.torch import DataLoader` instead of torch's own is the whole change."""

from __future__ import annotations

from lastwords import recording
from lastwords.survive.loader import DataLoader, as_ours, surviving_iterator

__all__ = ["DataLoader", "as_ours", "surviving_iterator"]

# Accelerate makes loaders of torch's class out of ours, in jobs that are not recorded too.
recording.adapt_after_import("accelerate.data_loader", "lastwords.engines.accelerate")
