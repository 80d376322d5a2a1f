"""torchrun: the agent prints our explanation as the failed rank's traceback.

The agent makes a `ProcessFailure` of each rank that it finds dead, and that reads the rank's error file. Where the rank
left none (only Python exceptions under `@record` do) we write it just before. Ranks that the agent itself stopped are
told apart from those that failed, and a rank that failed only because another was gone says which.

    lastwords run -- torchrun --nproc-per-node 8 train.py
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lastwords.engines.contract import Engine

if TYPE_CHECKING:
    from lastwords import Diagnosis
    from lastwords.engines.children import Child, Children

ENGINE = Engine("torchrun", tested=("2.15",))

# What gloo, NCCL and the store say when another rank does not answer. (torch 2.15)
OTHER_RANK = re.compile(
    r"timed? ?out|connection (closed|reset|refused|was closed)|closed by peer|pair closure|broken pipe|NCCL",
    re.IGNORECASE,
)
COLLECTIVES = "/torch/distributed/"
AT_LEAST = 0.001
"""Seconds on its batch for a rank to be asked where it stands: all of them are."""
RECORD_IT = "this rank was not recorded. For item, stack and memory: pip install lastwords, where it runs, and start the job by: lastwords run -- torchrun ..."


def adapt(module: ModuleType) -> None:
    _wrap(module.PContext, "start", _begin, before=False)
    for kind in (module.SubprocessContext, module.MultiprocessContext):
        _wrap(kind, "_close", _note_stopped, before=True)
    _wrap_poll(module.SubprocessContext)
    _wrap_failure(module.ProcessFailure)


def _wrap(kind: Any, name: str, call: Callable[[Any], None], *, before: bool) -> None:
    original, guarded = getattr(kind, name), ENGINE.guarded(call)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before:
            guarded(self)
        result = original(self, *args, **kwargs)
        if not before:
            guarded(self)
        return result

    setattr(kind, name, method)


def _wrap_poll(kind: Any) -> None:
    poll, look = kind._poll, ENGINE.guarded(_report_early_leavers)

    @functools.wraps(poll)
    def _poll(self: Any) -> Any:
        result = poll(self)
        if result is not None and not result.is_failed():
            look(self)
        return result

    kind._poll = _poll


def _wrap_failure(kind: Any) -> None:
    read, explain, mark = kind.__post_init__, ENGINE.guarded(_explain), ENGINE.guarded(_mark)

    @functools.wraps(read)
    def read_error_file(self: Any) -> None:
        text = explain(self)
        read(self)
        mark(self, text)

    kind.__post_init__ = read_error_file


# The ranks of one agent.


@dataclass(frozen=True, slots=True)
class Rank:
    pid: int
    rank: int
    local: int
    world: int
    attempt: int
    child: Child

    @property
    def name(self) -> str:
        return f"rank {self.rank}"


@dataclass(slots=True)
class Group:
    context: Any
    children: Children
    ranks: dict[int, Rank] = field(default_factory=dict)
    """By pid."""
    found: dict[int, Diagnosis] = field(default_factory=dict)

    def before(self, rank: Rank) -> Iterator[Rank]:
        """Those that had ended by themselves when this one did, the first of them first."""
        ended = [one for one in self.ranks.values() if one is not rank and not one.child.stopped_by_agent]
        limit = rank.child.ended or float("inf")
        gone = [(one.child.ended, one.rank, one) for one in ended if one.child.ended is not None]
        return (one for time, _, one in sorted(gone) if time < limit)

    def exit_code(self, rank: Rank) -> int | None:
        """As the agent learns it, by its own wait; None: it runs."""
        started = getattr(self.context, "subprocess_handlers", None)
        code: int | None
        if started is not None:
            code = started[rank.local].proc.poll()
        else:
            code = self.context._pc.processes[rank.local].exitcode
        return code

    def living(self, rank: Rank) -> list[Rank]:
        pids = self.children.living(self.ranks)
        return [self.ranks[pid] for pid in pids if pid != rank.pid]


_groups: list[Group] = []


def _begin(context: Any) -> None:
    from lastwords.engines.children import Children

    ENGINE.is_tested(sys.modules["torch"].__version__.partition("+")[0])
    if _groups:
        _tell_of_restart(_groups[-1])
    group = Group(context, _groups[-1].children if _groups else Children())
    for local, pid in context.pids().items():
        variables = context.envs[local]
        group.ranks[pid] = Rank(
            pid=pid,
            rank=int(variables.get("RANK", local)),
            local=local,
            world=int(variables.get("WORLD_SIZE", context.nprocs)),
            attempt=int(variables.get("TORCHELASTIC_RESTART_COUNT", 0)),
            child=group.children.add(pid),
        )
    _groups[:] = [group]


def _tell_of_restart(last: Group) -> None:
    """The agent says why a rank died only when it gives up: a job that restarts would hide it."""
    for pid, diagnosis in last.found.items():
        rank = last.ranks[pid]
        if not rank.child.stopped_by_agent:
            sys.stderr.write(f"lastwords: torchrun starts the ranks again; why {rank.name} failed:\n")
            sys.stderr.write(_panel(diagnosis, rank))
    sys.stderr.flush()


def _rank_of(pid: int) -> tuple[Group, Rank] | None:
    return next(((group, group.ranks[pid]) for group in _groups if pid in group.ranks), None)


def _note_stopped(context: Any) -> None:
    """The agent is about to stop what still runs: what they die of now is no news."""
    if _groups:
        pids = context.pids().values()
        for pid in _groups[-1].children.living(pids):
            _groups[-1].ranks[pid].child.stopped_by_agent = True


# A rank that failed.


def _explain(failure: Any) -> str | None:
    found = _rank_of(failure.pid)
    if found is None or found[1].child.stopped_by_agent:
        return None
    text = "\n".join(_paragraphs(*found, failure.exitcode))
    if not os.path.isfile(failure.error_file):
        _write(failure.error_file, text, int(found[1].child.ended or 0))
    return text


def _paragraphs(group: Group, rank: Rank, exitcode: int) -> Iterator[str]:
    diagnosis = _examined(group, rank, exitcode)
    first = next(group.before(rank), None) if _is_about_others(diagnosis) else None
    if first is not None:
        yield from _consequence(group, rank, first)
    elif _is_about_others(diagnosis):
        yield from _missing(group, rank)
    yield _panel(diagnosis, rank) if first is None else _own_words(diagnosis)


def _examined(group: Group, rank: Rank, exitcode: int) -> Diagnosis:
    from lastwords.engines.children import wait_status

    if rank.pid not in group.found:
        group.found[rank.pid] = group.children.examine(rank.pid, wait_status(exitcode))
    return group.found[rank.pid]


def _panel(diagnosis: Diagnosis, rank: Rank) -> str:
    from lastwords import postmortem
    from lastwords.engines.children import item_words

    place = f"rank {rank.rank} of {rank.world} (local rank {rank.local}) on {os.uname().nodename}"
    attempt = f", attempt {rank.attempt + 1}" if rank.attempt else ""
    is_recorded = postmortem.box_of(rank.pid) is not None or bool(
        diagnosis.evidence.id and diagnosis.evidence.item
    )
    return postmortem.text(
        diagnosis,
        subject=rank.name,
        item=item_words(diagnosis),
        context=(f"{place}{attempt}", *(() if is_recorded else (RECORD_IT,))),
    )


def _is_about_others(diagnosis: Diagnosis) -> bool:
    """It waited for another rank, and gave up or was cut off."""
    evidence = diagnosis.evidence
    if evidence.exception is not None:
        return bool(OTHER_RANK.search(f"{evidence.exception.kind} {evidence.exception.message}"))
    fault = evidence.fault  # NCCL's watchdog ends the process by an exception that nothing catches
    return fault is not None and bool(OTHER_RANK.search(f"{fault.abort_message} {fault.exception_what}"))


def _consequence(group: Group, rank: Rank, first: Rank) -> Iterator[str]:
    """One that failed has its own place in the agent's message; one that left with exit code 0 has none."""
    how, code = _ending(group, first), group.exit_code(first)
    yield f"{rank.name} failed because {first.name} (pid {first.pid}) was gone: it {how}, {_ago(first, rank)} before."
    if code == 0:
        yield _panel(_examined(group, first, code), first)


def _own_words(diagnosis: Diagnosis) -> str:
    raised = diagnosis.evidence.exception
    return f"{raised.kind}: {raised.message}" if raised is not None else ""


def _missing(group: Group, rank: Rank) -> Iterator[str]:
    """Who lives, and did not come to the collective."""
    from lastwords import postmortem

    looks = [(one, postmortem.hanging(one.pid, AT_LEAST, keep=False)) for one in group.living(rank)]
    absent = [(one, look.diagnosis) for one, look in looks if look is not None and not _waits(look.diagnosis)]
    for one, diagnosis in absent:
        yield f"{rank.name} waited for {one.name} (pid {one.pid}), which lives and did not come:"
        yield _panel(diagnosis, one)
    if looks and not absent:
        names = ", ".join(one.name for one, _ in looks)
        yield f"{rank.name} gave up while {names} waited in a collective, too: they wait for different ones."


def _waits(diagnosis: Diagnosis) -> bool:
    stack = diagnosis.evidence.python_stack
    return stack is not None and any(COLLECTIVES in frame.file for frame in stack.frames[:4])


def _ending(group: Group, rank: Rank) -> str:
    from lastwords.engines.children import ending

    code = group.exit_code(rank)
    if code == 0:
        return "left with exit code 0"
    return ending(_examined(group, rank, code)) if code is not None else "ended"


def _ago(one: Rank, rank: Rank) -> str:
    seconds = (rank.child.ended or 0.0) - (one.child.ended or 0.0)
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1000))} ms"


def _write(path: str, text: str, when: int) -> None:
    """By rename: the agent and whatever else reads error files never sees half of one."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return
    content = {"message": {"message": text, "extraInfo": {"py_callstack": text, "timestamp": str(when)}}}
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".lastwords-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(temporary, path)


def _mark(failure: Any, text: str | None) -> None:
    """What a rank wrote itself stays in its file; what we add to it is said beside it."""
    found = _rank_of(failure.pid)
    if found is None:
        return
    group, rank = found
    # Whole seconds do not tell which of two ranks was first.
    failure.timestamp = rank.child.ended or time.time()
    if rank.child.stopped_by_agent:
        first = next(group.before(rank), None)
        if isinstance(failure.message, str) and first is not None:
            failure.message += f": torchrun stopped it, because {first.name} had failed"
    elif text is not None and isinstance(failure.message, dict):
        _add(failure, text)


def _add(failure: Any, text: str) -> None:
    details = dict(failure.message.get("extraInfo") or {})
    said = details.get("py_callstack") or ""
    if text not in said:
        details["py_callstack"] = f"{said}\n{text}"
        failure.message = {**failure.message, "extraInfo": details}


# A rank that left, and said that all was well.


def _report_early_leavers(_context: Any) -> None:
    """`os._exit(0)` in the middle: torchrun takes that for success, and the others went on without it.

    All of them leaving so is a known way around a slow end of NCCL, and nobody's loss.
    """
    group = _groups[-1]
    looks = [(rank, _examined(group, rank, 0)) for rank in group.ranks.values()]
    early = [(rank, look) for rank, look in looks if look.evidence.shut_down is False]
    if len(early) == len(looks):
        return
    for rank, diagnosis in early:
        sys.stderr.write(f"lastwords: torchrun counts {rank.name} as done, but it left in the middle:\n")
        sys.stderr.write(_panel(diagnosis, rank))
    sys.stderr.flush()
