"""`lastwords list`: what has died here."""

from __future__ import annotations

import click

from lastwords.commands._command import Command


@click.command(
    cls=Command,
    short_help="What has died here, grouped by signature, newest first.",
    examples=("lastwords list", "lastwords list --json | jq '.[].death.id'"),
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects, schema lastwords/1.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Lists the deaths that were recorded here, those of one kind together."""
    from lastwords.diagnosis import diagnose
    from lastwords.evidence import unwatched
    from lastwords.evidence.store import Store
    from lastwords.show import json, listing

    unwatched.take_up(ctx.obj)
    store = Store(ctx.obj)
    diagnoses = [diagnose(evidence) for evidence in store.all()]
    if as_json:
        click.echo(json.render_all(diagnoses), nl=False)
    else:
        listing.show(diagnoses)
    for note in store.notes:
        click.echo(f"lastwords: {note}", err=True)
