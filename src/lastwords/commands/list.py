"""`lastwords list`: what has died here."""

from __future__ import annotations

import click

from lastwords.commands._command import Command


@click.command(
    cls=Command,
    short_help="What has died here, grouped by signature, newest first.",
    examples=(
        "lastwords list",
        "lastwords list --from /mnt/shared/deaths",
        "lastwords list --json | jq '.[].death.id'",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects, schema lastwords/1.")
@click.option("--from", "place", metavar="URL", help="Those of many hosts, from where they were collected.")
@click.pass_context
def command(ctx: click.Context, as_json: bool, place: str | None) -> None:
    """Lists the deaths that were recorded here, those of one kind together."""
    from lastwords.commands import _deaths
    from lastwords.diagnosis import diagnose
    from lastwords.show import json, listing

    found, notes = _deaths.every(ctx.obj, place)
    diagnoses = [diagnose(evidence) for evidence in found]
    if as_json:
        click.echo(json.render_all(diagnoses), nl=False)
    else:
        listing.show(diagnoses)
    for note in notes:
        click.echo(f"lastwords: {note}", err=True)
