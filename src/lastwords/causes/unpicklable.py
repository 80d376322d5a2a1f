"""Something cannot be sent to another process.

What goes to a worker or comes back from it is pickled: arguments, results, and exceptions too. Functions inside
functions, lambdas, locks, open files, database connections and generators cannot be. Under spawn (Windows, macOS, and
Linux from Python 3.14 on: forkserver) even the dataset and the collate function travel so. An exception whose
`__init__` wants other arguments than it passes on is pickled, but breaks when it is read back: the pool then loses
the true error.

The child's "EOFError: Ran out of input" is only the echo of what failed in the parent.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, from_text, nothing_said, reason, said
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "unpicklable")]
    if not reasons and said(evidence, "rebuild-failed"):
        reasons.extend(reason(evidence, "rebuild_failed", "rebuild-failed"))
        if said(evidence, "lost", "rebuilt", "sending"):
            reasons.append(Reason("between_processes", "and it happened on the way between two processes"))
    found = evidence.exception
    if found is not None and found.broke is not None:
        reasons.append(
            Reason(
                "broke_the_pool",
                f"{found.broke}: no process had died, but a worker had just sent {found.kind}",
            )
        )
    if (
        not reasons
        and from_text(evidence)
        and found is not None
        and not found.frames
        and "Caught" not in found.message
    ):
        reasons.append(
            Reason("no_traceback", "the exception has no traceback: it may be what was left of another one")
        )
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    found = evidence.exception
    if found is not None and found.broke is not None:
        return (
            f"{found.kind} cannot be made again from its pickle, so the pool broke instead of passing it on."
        )
    if _is_too_large(evidence):
        return "What was to go to another process is larger than 2 GB, which its pipe cannot carry."
    what = field(evidence, ("unpicklable",), "what")
    return (
        f"It cannot be sent to another process: {what.strip()}."
        if what
        else "Something that cannot be pickled had to go to another process."
    )


def _is_too_large(evidence: Evidence) -> bool:
    return any("format requires" in one.quote for one in said(evidence, "unpicklable"))


def facts(evidence: Evidence) -> Facts:
    found = evidence.exception
    broke = found.kind if found is not None and found.broke is not None else None
    return {"what": field(evidence, ("unpicklable",), "what") or broke}


def remedy(evidence: Evidence) -> Iterator[Step]:
    found = evidence.exception
    if _is_too_large(evidence):
        yield Step(
            text="send less at once, or a file's name: workers can map one file together (`np.load(mmap_mode='r')`)"
        )
        yield Step(
            text="Python 3.8 and later send more; `lastwords.ProcessPoolExecutor` sends arrays without a copy"
        )
        return
    if found is not None and found.broke is not None:
        name = found.kind.rpartition(".")[2]
        yield Step(
            text=f"in {name}.__init__, pass every argument on: super().__init__(*arguments); or give it __reduce__"
        )
        yield Step(
            text=f"then read what it has to say: {found.message.strip().splitlines()[0][:120] if found.message.strip() else name}"
        )
        return
    what = field(evidence, ("unpicklable",), "what") or ""
    if "<locals>" in what or "local object" in what or "lambda" in what:
        yield Step(
            text="move that function to the top level of its module; give it its data with functools.partial"
        )
    elif "lock" in what.lower() or "RLock" in what:
        yield Step(
            text="do not send objects that hold locks, sessions or loggers: open them in the worker (worker_init_fn, initializer=)"
        )
    else:
        yield Step(
            text="send plain data, and build the object in the worker (initializer=, worker_init_fn, __getstate__)"
        )
    yield Step(
        text="an exception of your own: pass all its arguments to super().__init__(), or give it __reduce__"
    )
    yield Step(
        text="find the part that cannot go:", command="python -c 'import pickle; pickle.dumps(OBJECT)'"
    )
    yield Step(text="joblib and loky can send more: `pip install cloudpickle`, backend='loky'")


CAUSE = Cause(
    id="unpicklable",
    title="Something cannot be sent to another process",
    doc=__doc__,
    needs=("exception", "mentions"),
    prior=-3.0,
    weights={
        "said_so": 6.3,
        "rebuild_failed": 2.0,
        "between_processes": 2.6,
        "no_traceback": 0.2,
        "broke_the_pool": 4.7,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("unpicklable-exception", "unpicklable-result", "text:unpicklable"),
    near_misses=("text:python-exception", "python-exception"),
)
