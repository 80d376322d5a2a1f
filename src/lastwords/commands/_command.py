"""What every command has beside click's own: an example under its help."""

from __future__ import annotations

from typing import Any

import click

from lastwords.commands import _place


class Command(click.Command):
    def __init__(self, *args: Any, examples: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(formatter, self.examples)


def program(ctx: click.Context) -> str:
    """How to call us again so that what we just kept or read is found: with `--home` if it was given."""
    return _place.program(ctx.find_root().params.get("home"))


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    """As they stand: click would fold them like prose."""
    with formatter.section("Example" if len(examples) == 1 else "Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
