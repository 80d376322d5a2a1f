"""`lastwords run`: a job with every Python process in it recorded, and each death explained as it happens."""

from __future__ import annotations

import os

import click

from lastwords.commands._command import Command
from lastwords.commands._problems import Problem

MOST_SECONDS = 1e8


class NoCommand(Problem):
    def __init__(self) -> None:
        super().__init__("run needs a command", then="lastwords run -- python job.py")


class NoTimeLimit(Problem):
    def __init__(self) -> None:
        super().__init__(
            "--kill-hung needs to know when a process hangs",
            then="lastwords run --hang-after 60 --kill-hung -- python job.py",
        )


@click.command(
    cls=Command,
    short_help="Run a job with every Python process in it recorded.",
    examples=(
        "lastwords run -- python train.py --epochs 3",
        "lastwords run --hang-after 60 -- python train.py",
    ),
    # What follows the command is the command's, also without the two dashes.
    context_settings={"allow_interspersed_args": False},
)
@click.option("--quiet", is_flag=True, help="Explain nothing now; `lastwords list` finds the deaths later.")
@click.option(
    "--hang-after",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True, max=MOST_SECONDS),
    help="An item that takes longer than S seconds counts as hanging, and is explained.",
)
@click.option("--kill-hung", is_flag=True, help="Then kill the process that hangs (SIGKILL).")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="When the job has ended, write all its deaths as one page that needs nothing else.",
)
@click.option(
    "--preflight",
    is_flag=True,
    help="First look at this machine, as `lastwords doctor --quick` does and with the libraries scanned; do not start "
    "a job that it would kill, and end with 1.",
)
@click.option(
    "--loader",
    is_flag=True,
    help="Have every torch DataLoader survive the deaths of its workers, as lastwords.torch.DataLoader does.",
)
@click.option(
    "--collect",
    metavar="URL",
    help="Send each death to a place for many hosts, too: a directory that they share, or s3://…, gs://… and whatever "
    "else fsspec knows. What cannot be sent now waits here. Default: $LASTWORDS_COLLECT.",
)
@click.argument("words", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    quiet: bool,
    hang_after: float | None,
    kill_hung: bool,
    html: str | None,
    preflight: bool,
    loader: bool,
    collect: str | None,
    words: tuple[str, ...],
) -> None:
    """Runs CMD as if lastwords were not there, and ends as CMD ends.

    Every Python process of the job keeps a black box. When one dies, its death is explained on standard error;
    with --hang-after, so is one that hangs, and it is left alone.
    """
    if not words:
        raise NoCommand
    if kill_hung and hang_after is None:
        raise NoTimeLimit
    if preflight:
        from lastwords.commands._preflight import may_start

        if not may_start(str(ctx.obj)):
            ctx.exit(1)
    if loader:
        os.environ["LASTWORDS_LOADER"] = "1"
    if collect:
        from lastwords.evidence.places import whole

        os.environ["LASTWORDS_COLLECT"] = whole(collect)
    from lastwords.commands._job import run_job
    from lastwords.watch.hangs import Policy

    hangs = Policy(hang_after, kill_hung) if hang_after is not None else None
    run_job(ctx.find_root().params.get("home"), words, quiet=quiet, hangs=hangs, html=html)
