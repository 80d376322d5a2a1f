"""`lastwords explain`: from what you have to why it died."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastwords.commands import _problems as problems
from lastwords.commands._command import Command, program

if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis
    from lastwords.evidence import Evidence, Status


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
        "dmesg | lastwords explain worker.box driver.log - --html death.html",
    ),
)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option(
    "--exit-code", type=int, metavar="N", help="The exit code, e.g. 139 or -11; it may be all you have."
)
@click.option("--signal", metavar="NAME", help="The signal, e.g. SIGKILL; it may be all you have.")
@click.option("--why-not", metavar="CAUSE", help="Why it was not that: all that speaks for and against.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the whole account as one page that needs nothing else.",
)
@click.option(
    "--memtest",
    is_flag=True,
    help="Write and read this machine's free memory for a few seconds: does it keep it?",
)
@click.option(
    "--json", "as_json", is_flag=True, help="One object, schema lastwords/1; an array for several deaths."
)
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    exit_code: int | None,
    signal: str | None,
    why_not: str | None,
    html: Path | None,
    memtest: bool,
    as_json: bool,
) -> None:
    """Explains a death from all that you have of it.

    TARGET is a death's id (see `lastwords list`), the path of a black box (.box), of a core file or of a log, or `-`
    for a log on standard input. A log may be anybody's: a traceback, dmesg, Spark, Ray, Slurm, `kubectl describe`; and it
    may be compressed (.gz, .bz2, .xz).

    Several TARGETs are put together: logs add what they say to the process that was recorded, and logs alone are taken
    for accounts of one death. Records of different processes are explained one after the other.

    --memtest is to be used on the machine that the process died on. An error in it proves failing hardware; that it finds
    none proves little.

    Ends with 0 when a cause is named, with 1 when there is not enough evidence for one.
    """
    from lastwords.diagnosis import diagnose

    deaths = _evidence(ctx.obj, targets, exit_code, signal)
    diagnoses = [diagnose(one) for one in (_with_memory_test(deaths) if memtest else deaths)]
    if why_not:
        if len(diagnoses) > 1:
            raise problems.OneDeathAtATime
        ctx.exit(_why_not(diagnoses[0], why_not, as_json))
    if html is not None:
        _deaths_page(ctx, diagnoses, html)
    _show(ctx, diagnoses, as_json)
    ctx.exit(0 if all(one.is_claimed for one in diagnoses) else 1)


def _evidence(
    home: Path, targets: tuple[str, ...], exit_code: int | None, signal: str | None
) -> tuple[Evidence, ...]:
    from lastwords.commands import _deaths
    from lastwords.evidence import from_status
    from lastwords.evidence.together import together

    if exit_code is not None and signal is not None:
        raise problems.TwoStatuses
    status = _status(exit_code, signal)
    if not targets and status is None:
        raise problems.NothingToExplain
    accounts = [_deaths.read(home, target) for target in dict.fromkeys(targets)]
    if status is not None:
        accounts.insert(0, from_status(status))
    return together(accounts)


def _with_memory_test(deaths: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    import msgspec

    from lastwords.evidence.memory_test import memory_test

    found = memory_test()
    return tuple(msgspec.structs.replace(one, memory_test=found) for one in deaths)


def _status(exit_code: int | None, signal: str | None) -> Status | None:
    from lastwords.evidence.status import from_exit_code, from_signal

    if exit_code is not None:
        return from_exit_code(exit_code, "exit code")
    if signal is None:
        return None
    status = from_signal(signal, "the signal you named")
    if status is None:
        raise problems.NoSuchSignal(signal)
    return status


def _deaths_page(ctx: click.Context, diagnoses: list[Diagnosis], file: Path) -> None:
    from lastwords.commands._page import write_page

    try:
        write_page(file, diagnoses, program=program(ctx))
    except OSError as error:
        raise problems.CannotWrite(str(file), error.strerror or "cannot be written") from None
    click.echo(f"wrote {file}", err=True)


def _show(ctx: click.Context, diagnoses: list[Diagnosis], as_json: bool) -> None:
    from lastwords.show import json, text

    if as_json:
        click.echo(json.render(diagnoses[0]) if len(diagnoses) == 1 else json.render_all(diagnoses), nl=False)
        return
    for number, one in enumerate(diagnoses):
        if number:
            click.echo()
        text.show(one, program=program(ctx))


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
