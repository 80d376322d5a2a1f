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
from lastwords.causes.words import ended, file_name, item_name
from lastwords.evidence.exit_call import function_of
from lastwords.evidence.model import Evidence
from lastwords.evidence.text.echoes import is_echo


def judge(evidence: Evidence) -> Iterator[Reason]:
    status = evidence.status
    said_so = list(reason(evidence, "said_so", "worker-exited"))
    yield from said_so
    if said_so:
        yield from reason(evidence, "another_guess", "memory-guess")
    if status is None or status.exit_code is None:
        never_ready = list(reason(evidence, "never_ready", "start-failed"))
        yield from never_ready
        if said_so or never_ready or only_lost(evidence):
            yield Reason("vanished", "a worker vanished; one that calls os._exit() does")
            return
        yield Reason("no_exit_code", f"{ended(evidence)}; this cause shows as an exit code")
        return
    yield Reason("exit_code", f"it ended by itself with exit code {status.exit_code}, of no signal")
    if (call := _call(evidence)) is not None:
        yield Reason("called", f"{call} was called {_where(evidence)}")
    if evidence.item is not None:
        yield Reason("mid_item", f"it was in the middle of {item_name(evidence.item)}")
    elif status.exit_code == 0:
        yield Reason("clean_end", "exit code 0 with no item in its hands is a normal end")
    yield from _judge_way(evidence)
    parent = evidence.parent_end
    if parent is not None and evidence.exception is None:
        yield Reason("parent_died_first", f"its parent, pid {parent.pid}, had ended before it")
    if _own_exception(evidence) is not None:
        yield Reason("exception_known", f"{_own_exception(evidence)} was raised, and nothing caught it")
    elif _is_unseen(evidence):
        yield Reason("not_recorded", "nothing recorded the process: an exception may have ended it as well")


def _own_exception(evidence: Evidence) -> str | None:
    """Its kind. In a log, the exception of a process that only tells of this one's end does not count."""
    found = evidence.exception
    if found is None or not found.fatal:
        return None
    return None if from_text(evidence) and is_echo(found.kind, found.message) else found.kind


def _call(evidence: Evidence) -> str | None:
    name = function_of(evidence.python_stack)
    return f"{name}()" if name else None


def _where(evidence: Evidence) -> str:
    assert evidence.python_stack is not None
    frame = evidence.python_stack.frames[0]
    return f"at {file_name(frame.file)}:{frame.line or '?'}, in {frame.function}"


def _is_unseen(evidence: Evidence) -> bool:
    """Nothing recorded the process: somebody only tells how it ended."""
    return evidence.process is None or from_text(evidence)


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
    known = "" if _is_unseen(evidence) else ", no exception"
    return f"It ended itself{where}, with exit code {code}: no signal{known}."


def facts(evidence: Evidence) -> Facts:
    return {
        "exit_code": evidence.status.exit_code if evidence.status else None,
        "item": item_name(evidence.item) if evidence.item else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if (call := _call(evidence)) is not None:
        yield Step(
            text=f"look {_where(evidence)}: {call} ends the whole process, and with it the work of others"
        )
        yield Step(text="raise an exception instead: pools pass it on, with its traceback")
        return
    if _is_unseen(evidence):
        yield Step(text="to see what it was doing, and whether an exception ended it: `lastwords run -- …`")
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
        "another_guess": -1.8,
        "vanished": 0.6,
        "mid_item": 1.5,
        "called": 1.0,
        "orderly": 0.2,
        "abrupt": 0.5,
        "clean_end": -5.0,
        "parent_died_first": -3.0,
        "exception_known": -5.0,
        "not_recorded": -1.15,
        "never_ready": 2.0,
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
