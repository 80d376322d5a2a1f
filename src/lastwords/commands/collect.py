"""`lastwords collect`: deaths on their way to where those of many hosts come together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastwords.commands._command import Command, program

if TYPE_CHECKING:
    from lastwords.evidence.outbox import Box


@click.command(
    cls=Command,
    short_help="What waits to be sent to the place that collects the deaths of many hosts.",
    examples=(
        "lastwords run --collect /mnt/shared/deaths -- python train.py",
        "lastwords collect",
        "lastwords collect --send",
    ),
)
@click.option("--send", is_flag=True, help="Send it now, and wait for that.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects, one for each place.")
@click.pass_context
def command(ctx: click.Context, send: bool, as_json: bool) -> None:
    """Says which deaths of this host wait for a place that could not be reached.

    With `--collect URL`, or LASTWORDS_COLLECT=URL in the environment of a job, its deaths go to a place that many hosts
    share, and `lastwords list --from URL` lists them all. What cannot be sent waits here, and goes with the next death,
    the next job's end, or --send. Exit status 1: something waits.
    """
    import json

    from lastwords.evidence import sending
    from lastwords.evidence.outbox import Outbox

    boxes = Outbox(ctx.obj).boxes()
    before = {box.url: len(box.waiting()) for box in boxes}
    answered = sending.send(ctx.obj) if send and any(before.values()) else True
    if as_json:
        click.echo(json.dumps([_plain(box, before[box.url]) for box in boxes], indent=2))
    else:
        for line in _lines(boxes, before, program(ctx)):
            click.echo(line)
    if not answered:
        click.echo("lastwords: the place does not answer; it is no longer waited for", err=True)
    ctx.exit(1 if any(box.waiting() for box in boxes) else 0)


def _plain(box: Box, before: int) -> dict[str, str | int | None]:
    from lastwords.evidence.travel import masked

    waiting = len(box.waiting())
    return {
        "place": masked(box.url),
        "sent": before - waiting,
        "waiting": waiting,
        "dropped": box.dropped,
        "refused": box.refused or None,
    }


def _lines(boxes: list[Box], before: dict[str, int], program: str) -> list[str]:
    from lastwords.evidence.outbox import MOST_BYTES, MOST_DEATHS
    from lastwords.evidence.quantities import size
    from lastwords.evidence.sending import words
    from lastwords.evidence.travel import masked

    lines = []
    for box in boxes:
        sent = before[box.url] - len(box.waiting())
        if sent > 0:
            lines.append(f"sent to {masked(box.url)}: {sent} · next: {program} list --from {masked(box.url)}")
        if box.waiting():
            lines.append(words(box))
        if box.dropped:
            room = f"{MOST_DEATHS} deaths or {size(MOST_BYTES)}"
            lines.append(
                f"no room, only {room} may wait: {box.dropped} of the oldest are in `{program} list` of this host alone"
            )
    return lines or ["nothing waits to be sent"]
