"""`lastwords show`: one death in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastwords.commands._command import Command, program
from lastwords.commands._problems import Problem

if TYPE_CHECKING:
    from lastwords.evidence import Evidence


class BoxStaysThere(Problem):
    def __init__(self, evidence: Evidence) -> None:
        host = evidence.process.host if evidence.process is not None else None
        super().__init__(
            f"the crash of {evidence.id} is not in that place",
            reason="a black box holds memory, and stays on its host",
            then=f"lastwords show {evidence.id} --minidump FILE, on {host or 'that host'}",
        )


@click.command(
    cls=Command,
    short_help="One death in full: causes, stacks, registers, what is missing.",
    examples=(
        "lastwords show 7f3a",
        "lastwords show 7f3a --from s3://bucket/deaths",
        "lastwords show 7f3a --json | jq '.causes[0]'",
        "lastwords show 7f3a --minidump crash.dmp && lldb -c crash.dmp",
    ),
)
@click.argument("death", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One object, schema lastwords/1.")
@click.option("--from", "place", metavar="URL", help="From where the deaths of many hosts are collected.")
@click.option(
    "--minidump",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the crash as a minidump, which lldb opens. It holds memory of the process.",
)
@click.pass_context
def command(ctx: click.Context, death: str, as_json: bool, place: str | None, minidump: Path | None) -> None:
    """Shows one death in full. ID may be shortened to its first four digits."""
    from lastwords.commands import _deaths
    from lastwords.diagnosis import diagnose
    from lastwords.show import json, text

    if minidump is not None and place is not None:
        raise BoxStaysThere(_deaths.find_in(place, death))
    if minidump is not None:
        _deaths.export_minidump(ctx.obj, death, minidump)
        click.echo(f"wrote {minidump}", err=True)
        return
    diagnosis = diagnose(_deaths.find(ctx.obj, death) if place is None else _deaths.find_in(place, death))
    if as_json:
        click.echo(json.render(diagnosis), nl=False)
    else:
        text.show(diagnosis, full=True, program=program(ctx))
