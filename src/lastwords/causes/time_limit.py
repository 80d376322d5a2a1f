"""A time limit ended it.

Somebody had set how long it may take: the batch system (Slurm, LSF, PBS), the engine (Celery's hard time limit,
Airflow's execution_timeout), a service (SageMaker, Lambda), a web server (gunicorn, uWSGI's harakiri) or a probe. A
worker that is killed for being too slow looks like any other kill, and gunicorn then even asks whether memory ran
out; the line about the time-out comes before it.

Whether the limit was too short or the worker stood still is another question: see `hang`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, first, nothing_said, reason, said
from lastwords.causes.words import crashed_too
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *reason(evidence, "limit_said", "time-limit"),
        *reason(evidence, "timeout_said", "work-timeout"),
    ]
    if not said(evidence, "time-limit"):
        reasons.extend(_of_the_disk(evidence, reasons))
    status = evidence.status
    if status is not None and status.exit_code == 124:
        reasons.append(Reason("exit_124", "exit code 124 is that of timeout(1)"))
    if status is not None and status.signal == "SIGXCPU":
        reasons.append(Reason("cpu_time", "SIGXCPU is sent when the limit of CPU time is reached"))
    if status is not None and status.signal == "SIGUSR2" and evidence.fault is None:
        text = "LSF and Grid Engine send SIGUSR2 (exit code 140) to a job whose time is over"
        reasons.append(Reason("batch_warning", text))
    if reasons and not said(evidence, "time-limit"):
        reasons.extend(crashed_too(evidence))
    yield from nothing_said(reasons)


def _of_the_disk(evidence: Evidence, reasons: list[Reason]) -> Iterator[Reason]:
    """Whoever gave up waiting says so, too; what it waited for is the cause."""
    if reasons:
        yield from reason(evidence, "waited_for_io", "io-stall")


def sentence(evidence: Evidence) -> str:
    found = first(evidence, "time-limit", "work-timeout")
    return (
        f"It took longer than {found.fields.get('by', 'somebody')} allows, and was ended for that."
        if found
        else "A time limit ended it."
    )


def facts(evidence: Evidence) -> Facts:
    kinds = ("time-limit", "work-timeout")
    return {"by": field(evidence, kinds, "by"), "seconds": field(evidence, kinds, "seconds")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    by = field(evidence, ("time-limit", "work-timeout"), "by") or ""
    if by == "gunicorn":
        yield Step(
            text="raise the limit, or let slow requests run in threads:",
            command="gunicorn --timeout 120 --worker-class gthread --threads 4 APP",
        )
    elif by == "Slurm":
        yield Step(
            text="ask for more time, and write checkpoints:", command="scontrol show job JOB | grep TimeLimit"
        )
        yield Step(text="have a warning a minute before it:", command="sbatch --signal=B:USR1@60 JOB.sh")
    elif by == "Celery":
        yield Step(text="raise time_limit and soft_time_limit of the task, or split it")
    elif by == "uWSGI":
        yield Step(text="raise `harakiri`, or move the slow work to a queue")
    else:
        yield Step(
            text=f"raise the limit of {by or 'whoever set it'}, or do less per step and keep checkpoints"
        )
    yield Step(text="see whether it was slow or stood still:", command="py-spy dump --pid PID")


CAUSE = Cause(
    id="time-limit",
    title="A time limit ended it",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "limit_said": 6.4,
        "timeout_said": 5.4,
        "waited_for_io": -3.4,
        "crashed_too": -3.0,
        "exit_124": 2.6,
        "batch_warning": 2.4,
        "cpu_time": 5.5,
        "nothing_said": -3.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("cpu-time-limit", "text:time-limit"),
    near_misses=("text:out-of-memory", "text:preemption"),
)
