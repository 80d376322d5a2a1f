"""Runs a command as if nobody watched. Imports no more than it takes to start it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lastwords import _native
from lastwords.watch import command, signals
from lastwords.watch.run_directory import RunDirectory

if TYPE_CHECKING:
    from lastwords.watch.hangs import OnHang, Policy
    from lastwords.watch.inquest import OnDeath
    from lastwords.watch.loop import Outcome


def run(
    words: Sequence[str],
    directory: RunDirectory | None,
    on_death: OnDeath,
    hangs: tuple[Policy, OnHang] | None = None,
) -> Outcome:
    """Without a directory nothing is recorded. Raises CommandRefused when the command cannot be started."""
    inbox = signals.Inbox()
    try:
        environment = dict(os.environb)
        if directory is not None:
            # Refused (a sandbox, say), it costs us the orphans and nothing else.
            with contextlib.suppress(OSError):
                _native.become_subreaper()
            environment[b"LASTWORDS"] = os.fsencode(directory.path)
        pid = command.spawn(words, environment, inbox.previous_mask)
        # Only now: the command starts while Python loads the rest of us.
        from lastwords.watch.loop import Loop

        return Loop(pid, inbox, directory, on_death, hangs).run()
    finally:
        inbox.close()
