"""A Python exception that nothing caught.

The process ended the way Python programs end when they fail: an exception reached the top. Pools and loaders
pass a worker's exception on to the main process, where it loses the item it came from; lastwords keeps each
worker's own account of it, so that the report names the item and the line in the worker.

Some exceptions are only echoes: `BrokenProcessPool`, or torch's "worker exited unexpectedly", say that another
process died. The cause is then in the report of that death.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone, shared_state
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import from_text, mentions, said
from lastwords.causes.words import ended, item_name
from lastwords.evidence.frames import yours
from lastwords.evidence.model import Evidence, PythonException
from lastwords.evidence.text import echoes

# Mentions that say no more about an exception than that it is one.
PLAIN = (
    "exception",
    "importing",
    "passed-on",
    "attribute-missing",
    "memory-guess",
    "rebuilt",
    "interrupted",
    "lost",
    "recursion",
)


def judge(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.exception
    status = evidence.status
    if found is None and from_text(evidence) and status is not None and status.exit_code == 1:
        yield Reason("exit_code_fits", "Python ends with exit code 1 after an exception; the log has none")
        return
    if found is None or not found.fatal:
        what = "none was recorded" if evidence.process else "nothing recorded the process"
        yield Reason("no_exception", f"no exception is known: {what}")
        return
    yield Reason("uncaught", _what(found))
    yield from _judge_text(evidence, found)
    yield from _judge_ending(evidence, found)
    yield from alone.died_again(evidence, "died_alone")
    if found.broke is not None:
        yield Reason("not_passed_on", f"the pool could not pass it on, and raised {found.broke} instead")
    if is_echo(found):
        yield Reason("echo", "the exception only says that another process died")
    if shared_state.in_worker(evidence) is not None:
        yield Reason("own_copy", "what it looked for may be there in another process")


def _judge_text(evidence: Evidence, found: PythonException) -> Iterator[Reason]:
    """A single line of a log may be what is left of another exception, or none that ended anything."""
    if from_text(evidence) and not found.frames and "Caught " not in found.message:
        has_header = any(one.fields.get("traceback") for one in said(evidence, "exception"))
        if not has_header:
            yield Reason("no_traceback", "the log has the exception's last line, and no traceback to it")
    for other in mentions(evidence):
        if other.source == found.source and other.kind not in PLAIN:
            yield Reason("reports_something", f"the exception is how it reports something else: {other.kind}")
            return


def _judge_ending(evidence: Evidence, found: PythonException) -> Iterator[Reason]:
    status = evidence.status
    if status is not None and status.exit_code == 1:
        yield Reason("exit_code_agrees", "it ended with exit code 1, as Python does then")
    if status is not None and status.signal:
        yield Reason("died_of_signal", f"{ended(evidence)}, not of the exception alone")
    if found.kind.endswith("KeyboardInterrupt"):
        yield Reason(
            "interrupted", "KeyboardInterrupt comes from outside: somebody pressed Ctrl-C or sent SIGINT"
        )


def is_echo(found: PythonException) -> bool:
    return echoes.is_echo(found.kind, found.message)


def _origin(found: PythonException) -> str:
    """`item 5 in worker 1`, as far as it is known."""
    item = item_name(found.item) if found.item else None
    worker = f"worker {found.worker}" if found.worker is not None and found.surfaced else None
    return " in ".join(filter(None, [item, worker])) or "it"


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]


def _what(found: PythonException) -> str:
    message = found.message.strip().splitlines()
    return f"{found.kind}: {message[0][:200]}" if message else found.kind


def sentence(evidence: Evidence) -> str:
    found = evidence.exception
    if found is None:
        return "It may have raised an exception that nothing caught."
    if is_echo(found):
        return "It stopped because one of its workers had died: this is the echo, not the cause."
    who = _origin(found)
    return f"{who[0].upper()}{who[1:]} raised {_short(found.kind)}, and nothing caught it."


def facts(evidence: Evidence) -> Facts:
    found = evidence.exception
    frame = yours(found.frames) if found else None
    item = found.item if found else None
    return {
        "type": found.kind if found else None,
        "message": found.message if found else None,
        "file": frame.file if frame else None,
        "line": frame.line if frame else None,
        "function": frame.function if frame else None,
        "item": (item.index if item.index is not None else item.key) if item else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    found = evidence.exception
    if found is None:
        return
    if is_echo(found):
        yield Step(text="read why the worker died:", command="lastwords list")
        return
    frame = yours(found.frames)
    where = f"{frame.file}:{frame.line}" if frame else "the line that raised it"
    yield Step(text=f"fix {where}, or catch {_short(found.kind)} there")
    if found.item is not None:
        yield Step(text=f"look at {item_name(found.item)} itself: what is different about it?")


CAUSE = Cause(
    id="python-exception",
    title="A Python exception that nothing caught",
    doc=__doc__,
    needs=("exception", "status"),
    prior=-3.0,
    weights={
        "uncaught": 6.5,
        "exit_code_agrees": 0.8,
        "died_alone": 0.3,
        "echo": -5.0,
        "not_passed_on": -3.5,
        "own_copy": -2.0,
        "died_of_signal": -4.0,
        "exit_code_fits": 2.0,
        "no_traceback": -3.6,
        "reports_something": -4.0,
        "interrupted": -4.0,
        "no_exception": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("python-exception", "text:python-exception"),
    near_misses=("exit-in-the-middle", "null-dereference"),
    fallback=2,
)
