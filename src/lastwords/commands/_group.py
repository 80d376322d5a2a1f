"""The click group whose commands are the files of this package."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import click

from lastwords import commands
from lastwords.commands._command import write_examples
from lastwords.commands._place import chosen_home


class Collected(click.Group):
    """A group whose commands are the modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        names = (found.name for found in pkgutil.iter_modules(commands.__path__))
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        found = import_module(f"{commands.__name__}.{cmd_name.replace('-', '_')}").command
        assert isinstance(found, click.Command)
        return found

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(formatter, ("lastwords demo", "lastwords run -- python train.py", "lastwords list"))


@click.group(cls=Collected, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home", metavar="DIR", help="Where deaths are kept. Default: $LASTWORDS_HOME, else the state directory."
)
@click.version_option(package_name="lastwords", message="lastwords %(version)s")
@click.pass_context
def group(ctx: click.Context, home: str | None) -> None:
    """Why did my Python worker die?"""
    ctx.obj = Path(chosen_home(home))
