"""`lastwords fleet`: facts of hosts, for `lastwords scan --fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lastwords.commands._command import Command, write_examples
from lastwords.commands._problems import Problem

if TYPE_CHECKING:
    from lastwords.prevent.fleet import Host


class NotHosts(Problem):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"cannot read hosts from {path}",
            reason=reason,
            then="lastwords fleet probe > hosts/$(hostname).json",
        )


class Fleet(click.Group):
    examples = (
        "lastwords fleet probe > hosts/$(hostname).json",
        "lastwords scan --fleet 'hosts/*.json' --emit k8s",
        "lastwords fleet list",
    )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(formatter, self.examples)


@click.group(cls=Fleet, short_help="Facts of hosts, for `scan --fleet`: probe this one, list those seen.")
def command() -> None:
    """Which hosts there are, and what each of them can do.

    `probe` prints the facts of this host as JSON, without secrets: CPU features, GPUs, memory, limits. `list` shows the
    hosts that are known here: recorded jobs leave the facts of their host in the home directory, so where that is
    shared the view grows by itself.
    """


@command.command(
    cls=Command,
    short_help="This host's facts as JSON, for `scan --fleet`.",
    examples=(
        "lastwords fleet probe > hosts/$(hostname).json",
        "srun --ntasks-per-node=1 lastwords fleet probe > hosts.json",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="JSON is all it prints; accepted for regularity.")
def probe(as_json: bool) -> None:
    """Prints what this host is and can do. No addresses, no users, no environment."""
    del as_json
    from lastwords.prevent import fleet

    click.echo(fleet.to_json(fleet.probe()), nl=False)


@command.command(
    "list",
    cls=Command,
    short_help="The hosts that are known here.",
    examples=("lastwords fleet list", "lastwords fleet list 'hosts/*.json' --json"),
)
@click.argument("files", metavar="[FILE...]", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="An array, as `scan --fleet` reads it.")
@click.pass_context
def list_hosts(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Lists the hosts of FILEs, else those that recorded jobs have left in the home directory."""
    import msgspec

    hosts = _hosts(ctx, files)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(hosts), indent=2))
        return
    for line in _table(hosts):
        click.echo(line)


def _hosts(ctx: click.Context, files: tuple[str, ...]) -> list[Host]:
    from lastwords.prevent import fleet

    known = ctx.obj / "hosts"
    if not files and not any(known.glob("*.json")):
        return []
    try:
        return fleet.load(files or (known,))
    except fleet.UnreadableHosts as error:
        raise NotHosts(error.path, error.reason) from None


def _table(hosts: list[Host]) -> list[str]:
    if not hosts:
        return ["no hosts known here yet · lastwords run and lastwords fleet probe make them known"]
    from lastwords.show.clean import clean

    rows = [
        ("host", "cpu", "level", "cpus", "memory", "gpus"),
        *(tuple(map(clean, _row(host))) for host in hosts),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _row(host: Host) -> tuple[Any, ...]:
    from lastwords.prevent import features, sizes

    level = host.level or (
        features.level_of(host.features) if host.architecture == "x86_64" else host.architecture
    )
    cards = ", ".join(gpu.name for gpu in host.gpus)
    return (
        host.host,
        host.cpu_model or "?",
        level,
        str(host.cpus or "?"),
        sizes.words(host.memory) if host.memory else "?",
        cards or "-",
    )
