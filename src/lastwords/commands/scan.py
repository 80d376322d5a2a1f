"""`lastwords scan`: what CPU each installed library needs without a guard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastwords.commands._command import Command
from lastwords.commands._problems import Problem

if TYPE_CHECKING:
    from lastwords.prevent.cpus import Cpu
    from lastwords.prevent.fleet import Host
    from lastwords.prevent.scan_judge import Subject
    from lastwords.prevent.scan_model import Library

EMITTERS = ("k8s", "spark", "ray", "slurm", "nomad")
BAD_NEWS = 1


class NoSuchCpu(Problem):
    def __init__(self, name: str, near: tuple[str, ...]) -> None:
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "names are archspec's, e.g. haswell, zen3, x86-64-v3"
        )
        super().__init__(
            f"no CPU is called {name}",
            reason=hint,
            then=f"lastwords scan --cpu {near[0] if near else 'haswell'}",
        )


class NoSuchPath(Problem):
    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path}", then="lastwords scan --help")


class BadFleet(Problem):
    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot read the fleet: {reason}", then="lastwords fleet probe > hosts/this.json")


@click.command(
    cls=Command,
    short_help="What CPU and GPU each installed library needs.",
    examples=(
        "lastwords scan",
        "lastwords scan --cpu haswell",
        "lastwords scan dist/mine-1.0-cp311-cp311-linux_x86_64.whl --json",
        "lastwords scan --fleet 'hosts/*.json' --emit spark",
    ),
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--cpu", metavar="NAME", help="Judge for this CPU, as archspec names it, instead of this host's."
)
@click.option(
    "--fleet", multiple=True, metavar="FILE", help="Judge for these hosts, as `fleet probe` wrote them."
)
@click.option(
    "--emit", type=click.Choice(EMITTERS), help="Print what keeps jobs on the hosts that can run them."
)
@click.option("--all", "show_all", is_flag=True, help="List the libraries that are fine, too.")
@click.option("--no-cache", is_flag=True, help="Read every file again.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects, one for each library.")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    cpu: str | None,
    fleet: tuple[str, ...],
    emit: str | None,
    show_all: bool,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Says which native libraries would die of an instruction that the CPU does not have.

    PATH is a library, a directory, a wheel or a container's root; by default this environment's site-packages.
    Exit status 1 when a library will crash. Results are kept by build-id: a second scan is quick.
    """
    from lastwords.commands import _scan_table
    from lastwords.prevent import scan as scanner

    hosts, chosen = _hosts(fleet), _cpu(cpu)
    found = scanner.read(_existing(paths), home=None if no_cache else ctx.obj, problem=_say)
    libraries = _judged(found, chosen, hosts, is_this_host=cpu is None and not fleet)
    if emit:
        from lastwords.prevent.emit import emit as emitted

        click.echo(emitted(emit, libraries, hosts), nl=False)
        return
    if as_json:
        click.echo(_scan_table.as_json(libraries), nl=False)
    elif hosts:
        _scan_table.show_fleet(found, hosts)
    else:
        _scan_table.show(libraries, chosen, show_all=show_all)
    if any(library.verdict == "will-crash" for library in libraries):
        ctx.exit(BAD_NEWS)


def _judged(found: list[Subject], cpu: Cpu, hosts: list[Host], *, is_this_host: bool) -> list[Library]:
    """With a fleet, each library's verdict is that of the worst host for it."""
    from lastwords.prevent import gpus
    from lastwords.prevent.scan import verdicts
    from lastwords.prevent.scan_model import WORST_FIRST

    if not hosts:
        here = gpus.present() if is_this_host and any(one.report.gpu for one in found) else ()
        capabilities = [gpu.compute_capability for gpu in here if gpu.compute_capability]
        return verdicts(found, cpu.features, cpu.architecture, capabilities)
    worst: dict[str, Library] = {}
    for host in hosts:
        for library in verdicts(found, frozenset(host.features), host.architecture):
            known = worst.setdefault(library.path, library)
            if WORST_FIRST.index(library.verdict) < WORST_FIRST.index(known.verdict):
                worst[library.path] = library
    return sorted(worst.values(), key=lambda one: (WORST_FIRST.index(one.verdict), one.path))


def _existing(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not Path(path).exists():
            raise NoSuchPath(path)
    return paths


def _cpu(name: str | None) -> Cpu:
    from lastwords.prevent import cpus

    if name is None:
        return cpus.this_host()
    try:
        return cpus.named(name)
    except cpus.UnknownCpu as error:
        raise NoSuchCpu(error.name, error.near) from None


def _hosts(fleet: tuple[str, ...]) -> list[Host]:
    if not fleet:
        return []
    from lastwords.prevent.fleet import UnreadableHosts, load

    try:
        return load(fleet)
    except UnreadableHosts as error:
        raise BadFleet(str(error)) from None


def _say(path: str, line: str) -> None:
    Problem(f"{path}: {line}").show()
