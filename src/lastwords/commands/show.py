"""`lastwords show`: one death in full."""

from __future__ import annotations

from pathlib import Path

import click

from lastwords.commands._command import Command, program


@click.command(
    cls=Command,
    short_help="One death in full: causes, stacks, registers, what is missing.",
    examples=(
        "lastwords show 7f3a",
        "lastwords show 7f3a --json | jq '.causes[0]'",
        "lastwords show 7f3a --minidump crash.dmp && lldb -c crash.dmp",
    ),
)
@click.argument("death", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One object, schema lastwords/1.")
@click.option(
    "--minidump",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the crash as a minidump, which lldb opens. It holds memory of the process.",
)
@click.pass_context
def command(ctx: click.Context, death: str, as_json: bool, minidump: Path | None) -> None:
    """Shows one death in full. ID may be shortened to its first four digits."""
    from lastwords.commands import _deaths
    from lastwords.diagnosis import diagnose
    from lastwords.show import json, text

    if minidump is not None:
        _deaths.export_minidump(ctx.obj, death, minidump)
        click.echo(f"wrote {minidump}", err=True)
        return
    diagnosis = diagnose(_deaths.find(ctx.obj, death))
    if as_json:
        click.echo(json.render(diagnosis), nl=False)
    else:
        text.show(diagnosis, full=True, program=program(ctx))
