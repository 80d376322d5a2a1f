"""`lastwords clean`: removes what recorded jobs left behind in this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastwords.commands._command import Command

if TYPE_CHECKING:
    from lastwords.watch.leftovers import Leftover


@click.command(
    cls=Command,
    short_help="Remove shared memory and processes that recorded jobs left behind.",
    examples=("lastwords clean --dry-run", "lastwords clean", "lastwords clean --processes"),
)
@click.option("--dry-run", is_flag=True, help="Only say what is there, and why it is taken to be a job's.")
@click.option(
    "--processes", is_flag=True, help="Also end processes that outlived their job (SIGTERM, then SIGKILL)."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.pass_context
def command(ctx: click.Context, dry_run: bool, processes: bool, as_json: bool) -> None:
    """Removes shared-memory files, semaphores and System V segments that jobs under `lastwords run` left behind.

    Only what is proven to be a job's: who made it was seen or is written in its name, it was not there before the job,
    and nobody uses it now. Exit status 1: something is still there.
    """
    import json

    from lastwords.watch import cleaning
    from lastwords.watch.leftovers import as_plain

    rows = []
    for note in cleaning.notes(str(ctx.obj)):
        stays = False
        for one in note.leftovers:
            outcome = _outcome(one, dry_run=dry_run, processes=processes)
            stays |= outcome not in ("gone", "removed")
            if outcome != "gone":
                rows.append({**as_plain(one), "outcome": outcome})
        if not stays:
            cleaning.forget(note)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        for line in _lines(rows):
            click.echo(line)
    ctx.exit(1 if any(row["outcome"] != "removed" for row in rows) else 0)


def _outcome(one: Leftover, *, dry_run: bool, processes: bool) -> str:
    from lastwords.watch.cleaning import remove
    from lastwords.watch.leftovers import is_the_same

    if not is_the_same(one):
        return "gone"
    if dry_run:
        return "is there"
    if one.kind == "process" and not processes:
        return "still running: --processes ends it"
    return remove(one) or "removed"


def _lines(rows: list[dict[str, str | int | None]]) -> list[str]:
    from lastwords.evidence.quantities import size

    lines = []
    for row in rows:
        name = f"pid {row['pid']} ({row['name']})" if row["kind"] == "process" else row["name"]
        bytes_ = f", {size(int(row['size']))}" if row["size"] is not None else ""
        lines.append(f"{row['outcome']}: {row['kind']} {name}{bytes_} · {row['proof']}")
    return lines or ["nothing is left behind"]
