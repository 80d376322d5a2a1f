"""`lastwords run`: a job with every Python process in it recorded, and each death explained as it happens."""

from __future__ import annotations

import click

from lastwords.commands._command import Command
from lastwords.commands._problems import Problem


class NoCommand(Problem):
    def __init__(self) -> None:
        super().__init__("run needs a command", then="lastwords run -- python job.py")


@click.command(
    cls=Command,
    short_help="Run a job with every Python process in it recorded.",
    examples=("lastwords run -- python train.py --epochs 3",),
    # What follows the command is the command's, also without the two dashes.
    context_settings={"allow_interspersed_args": False},
)
@click.option("--quiet", is_flag=True, help="Explain nothing now; `lastwords list` finds the deaths later.")
@click.argument("words", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, quiet: bool, words: tuple[str, ...]) -> None:
    """Runs CMD as if lastwords were not there, and ends as CMD ends.

    Every Python process of the job keeps a black box. When one dies, its death is explained on standard error.
    """
    if not words:
        raise NoCommand
    from lastwords.commands._job import run_job

    run_job(ctx.find_root().params.get("home"), words, quiet=quiet)
