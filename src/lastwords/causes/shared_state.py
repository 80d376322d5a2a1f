"""Processes shared what each of them must own.

A connection, a file handle or a generator of random numbers was made before the fork, and all workers use the same
one: answers get mixed up, TLS records do not decrypt, HDF5 reads nonsense, every worker draws the same numbers. It
works with one worker and fails with two.

Messages of libraries that notice are proof; two threads of one process are another cause, `data-race`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "said_so", "shared-state")])


def sentence(_evidence: Evidence) -> str:
    return "Several processes used one connection or handle that was made before they were forked."


def facts(evidence: Evidence) -> Facts:
    return {"line": found.line if (found := first(evidence, "shared-state")) else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="open connections and files in the worker: worker_init_fn (torch), initializer= (pools), @worker_process_init (Celery), post_fork (gunicorn, uWSGI)"
    )
    yield Step(
        text="SQLAlchemy: `engine.dispose(close=False)` at the start of each worker; h5py: open the file in __getitem__, once per worker"
    )
    yield Step(text="random numbers: seed from torch.initial_seed() or the worker's id")


CAUSE = Cause(
    id="shared-state",
    title="Processes shared what each must own",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 4.8,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:shared-state",),
    near_misses=("text:data-race", "text:network-failure"),
)
