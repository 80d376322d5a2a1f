"""Processes shared what each of them must own.

A connection, a file handle or a generator of random numbers was made before the fork, and all workers use the same
one: answers get mixed up, TLS records do not decrypt, HDF5 reads nonsense, every worker draws the same numbers. It
works with one worker and fails with two.

The other way round it is the same mistake: a dictionary or a list of a module or a class looks shared, and after the
fork each process has its own. What the main process, or another worker, adds later is not there when a worker looks.

Messages of libraries that notice are proof. A look-up that fails in a forked worker, in something that another function
fills, is suspicious and no more: the key may simply be wrong. Two threads of one process are another cause, `data-race`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason
from lastwords.causes.words import file_name
from lastwords.evidence.model import Evidence, SharedName


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "said_so", "shared-state"), *_own_copy(evidence)])


def _own_copy(evidence: Evidence) -> Iterator[Reason]:
    found = in_worker(evidence)
    if found is not None:
        where = f"{file_name(found.file)}:{found.line}"
        yield Reason(
            "own_copy",
            f"the look-up failed in a worker; {found.name} belongs to the {found.level} ({where}) and is filled by"
            f" {found.changed_by}(), line {found.changed_at}: what that adds in another process is not here",
        )


def in_worker(evidence: Evidence) -> SharedName | None:
    """What was looked up, if that was in a process that others were forked beside."""
    found, exception, process = evidence.shared_name, evidence.exception, evidence.process
    if found is None or exception is None or not exception.fatal:
        return None
    is_worker = bool(exception.surfaced) or bool(process and process.is_child)
    return found if is_worker else None


def sentence(evidence: Evidence) -> str:
    found = in_worker(evidence)
    if found is not None:
        return f"{found.name} is not shared: each process has its own, and the worker's lacks what it looked for."
    return "Several processes used one connection or handle that was made before they were forked."


def facts(evidence: Evidence) -> Facts:
    own = in_worker(evidence)
    return {
        "line": found.line if (found := first(evidence, "shared-state")) else None,
        "name": own.name if own else None,
        "level": own.level if own else None,
        "changed_by": own.changed_by if own else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    own = in_worker(evidence)
    if own is not None:
        yield Step(
            text=f"fill {own.name} before the workers are started, or pass what they need with the item or by initializer="
        )
        yield Step(
            text=f"if {own.name} must change while they run: multiprocessing.Manager().dict(), or a file or database"
        )
        return
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
    needs=("mentions", "shared_name"),
    prior=-3.0,
    weights={
        "said_so": 5.1,
        "own_copy": 3.8,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("filled-after-fork", "text:shared-state"),
    near_misses=("text:data-race", "text:network-failure", "python-exception"),
)
