"""One job from its start to its end, explained. Needs nothing of click, and little else before the job has started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from lastwords.commands._explainer import Explainer, closing_lines, say
from lastwords.commands._place import chosen_home, program
from lastwords.record.host import remember
from lastwords.watch.command import CommandRefused, end_as
from lastwords.watch.run_directory import RunDirectory, RunDirectoryRefused
from lastwords.watch.runner import run

if TYPE_CHECKING:
    from lastwords.watch.hangs import Policy
    from lastwords.watch.loop import Outcome


def run_job(
    home: str | None,
    words: Sequence[str],
    *,
    quiet: bool = False,
    hangs: Policy | None = None,
    html: str | None = None,
) -> NoReturn:
    """Ends this process as the command ended. `home` is what the user gave, `html` where it wants the page."""
    place = chosen_home(home)
    directory = _directory(place)
    explainer = Explainer(place, quiet=quiet, program=program(home))
    try:
        outcome = run(words, directory, explainer.explain, (hangs, explainer.explain_hang) if hangs else None)
    except CommandRefused as refused:
        _close(directory, None)
        say(str(refused))
        sys.exit(refused.exit_code)
    if directory is not None and explainer.ids:
        explainer.learn(directory.path)
    _close(directory, outcome)
    if outcome.leftovers:
        from lastwords.watch.cleaning import keep

        keep(place, outcome.leftovers)
    if directory is not None:
        remember(place)
    if html is not None:
        explainer.write_page(html)
    for line in closing_lines(outcome, explainer):
        say(line)
    if os.path.isdir(os.path.join(place, "outbox")):  # else nothing was ever to be collected elsewhere
        from lastwords.evidence import sending

        for line in sending.finish(place, program=explainer.program, waits=bool(explainer.ids)):
            say(line)
    end_as(outcome.raw_status)


def _directory(home: str) -> RunDirectory | None:
    try:
        return RunDirectory(home)
    except RunDirectoryRefused as refused:
        say(f"not recording this job: {refused}")
        return None


def _close(directory: RunDirectory | None, outcome: Outcome | None) -> None:
    """A box that somebody still writes, or that nobody could explain, stays."""
    if directory is not None:
        is_needed = outcome is not None and bool(outcome.still_running or outcome.unexplained)
        directory.close(keep_boxes=is_needed)
