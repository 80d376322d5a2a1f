"""`lastwords explain`: from what you have to why it died."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastwords.commands import _problems as problems
from lastwords.commands._command import Command, program

if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis
    from lastwords.evidence import Evidence


@click.command(
    cls=Command,
    short_help="Why a process died: from a death id, a .box, a core, a log or an exit code.",
    examples=(
        "lastwords explain 7f3a",
        "lastwords explain core.4711",
        "lastwords explain job.log",
        "kubectl logs trainer --previous | lastwords explain -",
        "lastwords explain --exit-code 132",
        "lastwords explain 7f3a --why-not external-kill",
    ),
)
@click.argument("target", required=False)
@click.option("--exit-code", type=int, metavar="N", help="All you have is an exit code, e.g. 139 or -11.")
@click.option("--signal", metavar="NAME", help="All you have is a signal, e.g. SIGKILL.")
@click.option("--why-not", metavar="CAUSE", help="Why it was not that: all that speaks for and against.")
@click.option("--json", "as_json", is_flag=True, help="One object, schema lastwords/1.")
@click.pass_context
def command(
    ctx: click.Context,
    target: str | None,
    exit_code: int | None,
    signal: str | None,
    why_not: str | None,
    as_json: bool,
) -> None:
    """Explains one death.

    TARGET is a death's id (see `lastwords list`), the path of a black box (.box), of a core file or of a log, or `-`
    for a log on standard input. A log may be anybody's: a traceback, dmesg, Spark, Ray, Slurm, `kubectl describe`.
    Ends with 0 when a cause is named, with 1 when there is not enough evidence for one.
    """
    from lastwords.diagnosis import diagnose

    diagnosis = diagnose(_evidence(ctx.obj, target, exit_code, signal))
    if why_not:
        ctx.exit(_why_not(diagnosis, why_not, as_json))
    _show(ctx, diagnosis, as_json)
    ctx.exit(0 if diagnosis.is_claimed else 1)


def _evidence(home: Path, target: str | None, exit_code: int | None, signal: str | None) -> Evidence:
    from lastwords.commands import _deaths
    from lastwords.evidence import from_status
    from lastwords.evidence.status import from_exit_code, from_signal

    given = [one for one in (target, exit_code, signal) if one is not None]
    if not given:
        raise problems.NothingToExplain
    if len(given) > 1:
        raise problems.TooManyTargets
    if target is not None:
        return _deaths.read(home, target)
    if exit_code is not None:
        return from_status(from_exit_code(exit_code, "exit code"))
    status = from_signal(signal or "", "the signal you named")
    if status is None:
        raise problems.NoSuchSignal(signal or "")
    return from_status(status)


def _show(ctx: click.Context, diagnosis: Diagnosis, as_json: bool) -> None:
    from lastwords.show import json, text

    if as_json:
        click.echo(json.render(diagnosis), nl=False)
    else:
        text.show(diagnosis, program=program(ctx))


def _why_not(diagnosis: Diagnosis, cause: str, as_json: bool) -> int:
    """The exit status: 0 when the question is answered."""
    from lastwords.causes import all_causes
    from lastwords.diagnosis import why_not
    from lastwords.show import json
    from lastwords.show import why_not as show_why_not

    answer = why_not(diagnosis, cause)
    if answer is None:
        raise problems.NoSuchCause(cause, tuple(known.id for known in all_causes()))
    if as_json:
        click.echo(json.encode(answer), nl=False)
    else:
        show_why_not.show(answer)
    return 0
