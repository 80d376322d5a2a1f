"""`lastwords doctor`: this machine before the job, and the job's first batches on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastwords.commands._command import Command
from lastwords.commands._problems import Problem

if TYPE_CHECKING:
    from lastwords.diagnosis.model import Verdict
    from lastwords.prevent.doctor import Report
    from lastwords.prevent.patient import Patient
    from lastwords.prevent.trial import Dose

MOST_SECONDS = 86400.0
SOON = 0.5


class NotStarted(Problem):
    def __init__(self, reason: str) -> None:
        super().__init__(
            "the job could not be started", reason=reason, then="lastwords doctor -- python train.py"
        )


class NotASize(Problem):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text} is no size of a batch", then="lastwords doctor --batch 38MB")


class NotATime(Problem):
    def __init__(self) -> None:
        super().__init__("nan is no time", then="lastwords doctor --seconds 60 -- python train.py")


class TwoWaysToTell(Problem):
    def __init__(self) -> None:
        super().__init__(
            "--workers and --batch tell what a job needs, and a command shows it: one of the two",
            then="lastwords doctor -- python train.py",
        )


@click.command(
    cls=Command,
    short_help="This machine before the job: what would kill it, and the fix.",
    examples=(
        "lastwords doctor",
        "lastwords doctor --workers 8 --batch 38MB",
        "lastwords doctor -- python train.py",
        "lastwords doctor --json | jq '.findings[] | select(.severity == \"kills\")'",
    ),
    context_settings={"allow_interspersed_args": False},
)
@click.option("--json", "as_json", is_flag=True, help="One object, schema lastwords-doctor/1.")
@click.option("--workers", metavar="N", type=click.IntRange(0, 100_000), help="Judge for that many workers.")
@click.option("--batch", metavar="SIZE", help="Judge for batches of that size, e.g. 38MB.")
@click.option(
    "--batches",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    default=16,
    show_default=True,
    help="With a command: stop it after so many batches.",
)
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True, max=MOST_SECONDS),
    default=120.0,
    show_default=True,
    help="With a command: stop it after that time, whatever it has done.",
)
@click.option(
    "--quick", is_flag=True, help="Neither import torch and its like in a trial, nor scan the libraries."
)
@click.argument("words", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    as_json: bool,
    workers: int | None,
    batch: str | None,
    batches: int,
    seconds: float,
    quick: bool,
    words: tuple[str, ...],
) -> None:
    """One page about this machine, worst first, each finding with its fix. Ends with 1 if one would kill the job.

    With CMD the job really starts, here and now, with all that it reads and writes. After its first batches it gets
    SIGINT, as from Ctrl-C (then SIGTERM, then SIGKILL, should it not end), and what it left running is ended. The page
    is then judged by what was measured. LASTWORDS_DOCTOR=1 is set in it, for a job that wants to leave its
    checkpoints alone.
    """
    if seconds != seconds:  # noqa: PLR0124  # nan, which click takes for a number in any range
        raise NotATime
    if words and (workers is not None or batch is not None):
        raise TwoWaysToTell
    from lastwords.prevent.trial import Dose

    if words:
        report, explained = _tried(ctx, words, Dose(batches, seconds), quick=quick)
    else:
        report, explained = _untried(ctx, workers, batch, quick=quick), []
    _show(report, explained, as_json=as_json)
    ctx.exit(1 if report.would_kill else 0)


def _untried(ctx: click.Context, workers: int | None, batch: str | None, *, quick: bool) -> Report:
    from lastwords.prevent import doctor, needs, sizes
    from lastwords.prevent.patient import Patient

    try:
        size = sizes.parse(batch) if batch is not None else None
    except ValueError:
        raise NotASize(batch or "") from None
    patient = Patient(str(ctx.obj), asks_interpreter=not quick, scans=not quick)
    _begin_scan(patient)
    job = needs.supposed(patient.interpreter, workers, size)
    return doctor.examine(patient, job, _host())


def _tried(
    ctx: click.Context, words: tuple[str, ...], dose: Dose, *, quick: bool
) -> tuple[Report, list[str]]:
    import msgspec

    from lastwords.prevent import doctor, needs, trial
    from lastwords.prevent.patient import Patient

    say = f"lastwords: the job runs now, for {dose.batches} batches and at most {dose.seconds:g} s; then it gets Ctrl-C"
    click.echo(say, err=True)
    try:
        with trial.tried(words, dose) as (found, home):
            causes = _causes(home, found.said)
    except trial.JobRefused as error:
        raise NotStarted(str(error)) from None
    found = msgspec.structs.replace(found, causes=tuple(one.id for one in causes))
    explained = [f"{one.id} {one.confidence:.0%}: {one.sentence}" for one in causes][:3]
    patient = Patient(str(ctx.obj), trial=found, asks_interpreter=not quick, scans=not quick)
    _begin_scan(patient)
    return doctor.examine(patient, needs.of_trial(found), _host()), explained


def _begin_scan(patient: Patient) -> None:
    """Says so where somebody looks on and the libraries are not known yet: reading them all takes seconds."""
    import sys
    from concurrent.futures import wait

    scan = patient.begin_scan()
    if scan is not None and sys.stderr.isatty() and wait([scan], timeout=SOON).not_done:
        click.echo("lastwords: reading the installed libraries; the next time they are known …", err=True)


def _causes(home: str, said: tuple[str, ...]) -> list[Verdict]:
    """Of what died in the trial; of one that stands still for ever there is only what it wrote."""
    from lastwords.diagnosis import diagnose, explain
    from lastwords.evidence.store import Store

    diagnoses = [diagnose(evidence) for evidence in Store(home).all()]
    if not diagnoses and said:
        diagnoses = [diagnosis for diagnosis in (explain("\n".join(said)),) if diagnosis.is_claimed]
    return [diagnosis.best for diagnosis in diagnoses if diagnosis.best is not None]


def _host() -> str:
    import os

    return os.uname().nodename


def _show(report: Report, explained: list[str], *, as_json: bool) -> None:
    import sys

    import msgspec

    if as_json:
        found = {**msgspec.to_builtins(report), "would_kill": report.would_kill, "explained": explained}
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    from lastwords.commands import _doctor_page
    from lastwords.show.text import put, wants_colour, width_of

    width, colour = width_of(sys.stdout), wants_colour(sys.stdout)
    put(sys.stdout, _doctor_page.render(report, explained, width=width, colour=colour))
