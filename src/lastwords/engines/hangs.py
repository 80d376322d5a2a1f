"""What is known of a task that somebody has waited for in vain: told in the error of whoever gave up.

Nobody waits for news here, and no worker is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from lastwords import recording

GLANCE = 1.0
"""Seconds between two looks: a program may ask for a result, with a short timeout, in a loop."""

_looked = 0.0


def may_look() -> bool:
    global _looked
    if not recording.is_recording() or time.monotonic() < _looked + GLANCE:
        return False
    _looked = time.monotonic()
    return True


def seen_by_lastwords_run(
    names: Iterable[str], words_of: Callable[[Any], str | None], subject: str
) -> str | None:
    """What `lastwords run --hang-after` has found out about an item that has one of these names in its words."""
    from lastwords import postmortem
    from lastwords.engines.children import recall_hang

    wanted = tuple(names)
    found = recall_hang(lambda evidence: any(name in (words_of(evidence) or "") for name in wanted))
    if found is None:
        return None
    return postmortem.text(found, subject=subject, item=words_of(found.evidence), brief=True)
