"""`lastwords demo`: the tour."""

from __future__ import annotations

from pathlib import Path

import click

from lastwords.commands._command import Command


@click.command(
    cls=Command,
    short_help="The tour: a few throw-away deaths, explained. Takes ten seconds.",
    examples=("lastwords demo",),
)
@click.option("--keep", metavar="DIR", help="Keep the deaths of the tour in DIR, to look at them again.")
@click.pass_context
def command(ctx: click.Context, keep: str | None) -> None:
    """Kills a few small jobs of its own and explains their deaths.

    It needs nothing but Python, touches nothing of yours, and leaves nothing behind.
    """
    import sys

    from lastwords.commands._tour import play

    ctx.exit(0 if play(sys.stdout, Path(keep).absolute() if keep else None) else 1)
