"""The command line. Every file here whose name has no underscore in front is a command: it has a `command`.

Commands are imported when they are called, and import what they need inside their functions: `lastwords run`
must not pay for click before the job has started, nor for the renderers before there is something to show.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    try:
        _main()
    except ImportError as refused:
        if refused.name != "lastwords._native":
            raise
        # The native module is for another CPU, and says so.
        sys.stderr.write(f"lastwords: {refused}\n")
        sys.exit(2)


def _main() -> None:
    plain = _plain_run(sys.argv[1:])
    if plain is not None:
        from lastwords.commands._job import run_job

        run_job(*plain)
    from lastwords.commands._group import group

    group(prog_name="lastwords")


def _plain_run(words: Sequence[str]) -> tuple[str | None, Sequence[str]] | None:
    """`[--home DIR] run -- CMD…`, as nearly everybody types it; everything else is click's to understand."""
    home = None
    if len(words) > 2 and words[0] == "--home":
        home, words = words[1], words[2:]
    if len(words) > 2 and words[0] == "run" and words[1] == "--":
        return home, words[2:]
    return None
