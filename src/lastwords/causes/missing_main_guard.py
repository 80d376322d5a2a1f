"""The main module starts its workers without `if __name__ == "__main__":`.

Under spawn and forkserver (always on Windows and macOS, and the default on Linux from Python 3.14 on) each worker
imports the main module again. If that starts workers, Python refuses, or the program starts itself without end. The
same code runs well where workers are forked.

Python's own message names the idiom; a pool then reports only that it broke.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, only_lost, reason
from lastwords.evidence.model import Evidence


def _hints(evidence: Evidence) -> Iterator[Reason]:
    lost = first(evidence, "lost")
    if only_lost(evidence) and lost is not None and lost.system in ("process pool", "torch DataLoader"):
        yield Reason("pool_broke", "a pool broke at once; without the guard it does")
    elif only_lost(evidence) and _pipe_broke(evidence):
        yield Reason("pool_broke", "a worker was gone before it had read its task; without the guard it is")


def _pipe_broke(evidence: Evidence) -> bool:
    return evidence.exception is not None and evidence.exception.kind in ("EOFError", "BrokenPipeError")


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "said_so", "main-guard"), *_hints(evidence)])


def sentence(_evidence: Evidence) -> str:
    return 'The main module starts workers again in each worker: it lacks `if __name__ == "__main__":`.'


def facts(evidence: Evidence) -> Facts:
    return {"line": found.line if (found := first(evidence, "main-guard")) else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="put what starts the job into a function, and call it under the guard:",
        command='if __name__ == "__main__": main()',
    )
    yield Step(text="in a notebook, put the worker's function into a module of its own and import it")


CAUSE = Cause(
    id="missing-main-guard",
    title="The main module starts workers when it is imported",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 6.2,
        "pool_broke": 0.3,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("missing-main-guard", "text:missing-main-guard"),
    near_misses=("text:unpicklable", "text:python-exception"),
)
