"""Processes shared what each of them must own.

A connection, a file handle or a generator of random numbers was made before the fork, and all workers use the same
one: answers get mixed up, TLS records do not decrypt, HDF5 reads nonsense, every worker draws the same numbers. It
works with one worker and fails with two.

The other way round it is the same mistake: a dictionary or a list of a module or a class looks shared, and after the
fork each process has its own. What the main process, or another worker, adds later is not there when a worker looks.

An item that dies while another worker is there, and passes when it is tried again alone, is a hint, the more so where the
crash was at work on memory that several processes map (shared memory, a mapped file in /dev/shm).

Messages of libraries that notice are proof. A look-up that fails in a forked worker, in something that another function
fills, is suspicious and no more: the key may simply be wrong. Two threads of one process are another cause, `data-race`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason
from lastwords.causes.words import file_name
from lastwords.evidence.model import Evidence, SharedName

# As /proc/PID/maps names them. A worker's own arena is a memfd, and shared with nobody but whoever started it.
SHARED = re.compile(r"/dev/shm/|/dev/zero\b|/SYSV")  # noqa: S108  # names of mappings, not files of ours


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *reason(evidence, "said_so", "shared-state"),
        *_own_copy(evidence),
        *_in_company(evidence),
    ]
    yield from nothing_said(reasons)


def _in_company(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.tried_alone
    if found is None or not found.others:
        return
    passed = list(alone.passed(evidence, "passed_alone" if found.others_then else "passed_without_others"))
    memory = shared_memory(evidence)
    yield from passed
    if passed and memory is not None:
        yield Reason(
            "in_shared_memory", f"it was at work on {memory}, memory that other processes may change"
        )


def shared_memory(evidence: Evidence) -> str | None:
    """What it crashed in, or had a register on, if that is mapped by several processes."""
    fault = evidence.fault
    places = [fault.address_in if fault else None, *(one.points_into for one in evidence.pointers or ())]
    found = next((one for one in places if one is not None and SHARED.match(one)), None)
    return "a shared mapping without a name" if found is not None and "/dev/zero" in found else found


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
    if first(evidence, "shared-state") is None and alone.outcome(evidence) is not None:
        return "Something that several workers share may have been changed by one while another used it."
    return "Several processes used one connection or handle that was made before they were forked."


def facts(evidence: Evidence) -> Facts:
    own = in_worker(evidence)
    return {
        "line": found.line if (found := first(evidence, "shared-state")) else None,
        "name": own.name if own else None,
        "level": own.level if own else None,
        "changed_by": own.changed_by if own else None,
        "memory": shared_memory(evidence) if alone.outcome(evidence) is not None else None,
        "tried_alone": alone.outcome(evidence),
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
    if (memory := shared_memory(evidence)) is not None and alone.outcome(evidence) is not None:
        yield Step(
            text=f"see who writes {memory} while others read it: hold a multiprocessing.Lock around both, or give each worker a copy"
        )
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
    needs=("mentions", "shared_name", "tried_alone", "pointers"),
    prior=-3.0,
    weights={
        "said_so": 5.1,
        "own_copy": 3.8,
        "passed_alone": 0.7,
        "passed_without_others": 1.4,
        "in_shared_memory": 1.9,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("filled-after-fork", "dies-in-company", "text:shared-state"),
    near_misses=("dies-alone-too", "text:data-race", "text:network-failure", "python-exception"),
)
