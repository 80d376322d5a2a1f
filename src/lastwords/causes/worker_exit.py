"""The process ended by itself, without a signal and without an exception.

Somebody called `os._exit()`, `sys.exit()` or C's `exit()`: in the middle of an item the pool waits for an
answer that never comes, and even exit code 0 is a death. Which of the three it was can be told: `sys.exit()`
passes through Python's own shutdown, which lastwords sees; the other two do not. (A worker of multiprocessing
always ends by `os._exit()`, so there it cannot.)
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import from_text, only_lost, reason
from lastwords.causes.words import ended, item_name
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    status = evidence.status
    said_so = list(reason(evidence, "said_so", "worker-exited"))
    yield from said_so
    if status is None or status.exit_code is None:
        if said_so or only_lost(evidence):
            yield Reason("vanished", "a worker vanished; one that calls os._exit() does")
            return
        yield Reason("no_exit_code", f"{ended(evidence)}; this cause shows as an exit code")
        return
    yield Reason("exit_code", f"it ended by itself with exit code {status.exit_code}, of no signal")
    if evidence.item is not None:
        yield Reason("mid_item", f"it was in the middle of {item_name(evidence.item)}")
    elif status.exit_code == 0:
        yield Reason("clean_end", "exit code 0 with no item in its hands is a normal end")
    yield from _judge_way(evidence)
    parent = evidence.parent_end
    if parent is not None and evidence.exception is None:
        yield Reason("parent_died_first", f"its parent, pid {parent.pid}, had ended before it")
    if evidence.exception is not None and evidence.exception.fatal:
        yield Reason("exception_known", f"{evidence.exception.kind} was raised, and nothing caught it")
    elif evidence.process is None or from_text(evidence):
        yield Reason("not_recorded", "nothing recorded the process: an exception may have ended it as well")


def _judge_way(evidence: Evidence) -> Iterator[Reason]:
    if evidence.shut_down:
        yield Reason("orderly", "Python shut down in order: sys.exit() or the end of the program")
    elif evidence.shut_down is False and evidence.process is not None and not evidence.process.is_child:
        yield Reason("abrupt", "Python did not shut down in order: os._exit(), or exit() of C")


def sentence(evidence: Evidence) -> str:
    code = evidence.status.exit_code if evidence.status else None
    if code is None:
        return "It ended itself, without a signal and without an exception."
    where = f" in the middle of {item_name(evidence.item)}" if evidence.item else ""
    return f"It ended itself{where}, with exit code {code}: no signal, no exception."


def facts(evidence: Evidence) -> Facts:
    return {
        "exit_code": evidence.status.exit_code if evidence.status else None,
        "item": item_name(evidence.item) if evidence.item else None,
    }


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="find who ends the process, in the code that runs in it:",
        command=r"grep -rnE '\b(os\._exit|sys\.exit|quit|exit)\(' --include='*.py' .",
    )
    yield Step(text="raise an exception instead: pools pass it on, with its traceback")


CAUSE = Cause(
    id="worker-exit",
    title="The process ended by itself",
    doc=__doc__,
    needs=("status", "item", "exception"),
    prior=-3.0,
    weights={
        "exit_code": 4.0,
        "said_so": 4.0,
        "vanished": 0.6,
        "mid_item": 1.5,
        "orderly": 0.2,
        "abrupt": 0.5,
        "clean_end": -5.0,
        "parent_died_first": -3.0,
        "exception_known": -5.0,
        "not_recorded": -1.5,
        "no_exit_code": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("exit-in-the-middle", "sys-exit"),
    near_misses=("python-exception", "killed-from-outside", "parent-died"),
    fallback=1,
)
