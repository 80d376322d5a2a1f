"""The process was forked while another thread held a lock, and waits for that lock for ever.

fork() copies the memory and only one thread. A lock that another thread held at that moment stays locked in the
child, and nobody is there to release it. The thread belongs to OpenMP, OpenCV, BLAS, gRPC, a logger or CUDA; the
worker then hangs at its first call into that library, without a word.

Python and some libraries warn when they see it coming. A mutex of C knows its owner: one that is no thread of this
process proves it. A lock of Python knows none; there it is shown by what is left: the parent had more threads when it
forked, and no thread here is in a place where it could hold the lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, quoted, reason, said
from lastwords.causes.words import signal_of
from lastwords.evidence import signals
from lastwords.evidence.model import Evidence, PythonFrame

WAITING_ROOMS = ("/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/connection.py")


def judge(evidence: Evidence) -> Iterator[Reason]:
    hints, waits = (
        said(evidence, "fork-hint"),
        said(evidence, "waiting", "no-progress", "deadlock", "lock-wait"),
    )
    reasons = [
        *_orphaned_lock(evidence),
        *_lock_of_nobody(evidence),
        *reason(evidence, "said_so", "fork-deadlock"),
        *reason(evidence, "forked_with_threads", "fork-hint"),
    ]
    if _gave_up(evidence):
        waits = ()  # who dies of a fault in a barrier waits no longer
    if hints and waits:
        reasons.append(quoted("stands_still", waits[0]))
    elif waits:
        reasons.append(quoted("waits", waits[0]))
    if waits and said(evidence, "lock-wait"):
        reasons.extend(reason(evidence, "waits_for_lock", "lock-wait"))
    yield from nothing_said(reasons)


def _orphaned_lock(evidence: Evidence) -> Iterator[Reason]:
    """A thread waits for a mutex whose owner is no thread of this process: it stayed behind in the parent."""
    found = evidence.hang
    locks = [found.lock, *(thread.lock for thread in found.threads)] if found is not None else []
    for lock in locks:
        if lock is not None and lock.owner_is_here is False:
            yield Reason(
                "owner_left_behind",
                f"the lock it waits for is held by thread {lock.owner}, which is not here",
            )
            return


def _lock_of_nobody(evidence: Evidence) -> Iterator[Reason]:
    """It waits for a lock of Python, and nobody here can have it."""
    found, process = evidence.hang, evidence.process
    if found is None or process is None or not process.is_child or (found.parent_threads or 1) < 2:
        return
    frames = evidence.python_stack.frames if evidence.python_stack else ()
    # Events, conditions and queues wait on locks, too: those are let go by somebody else's work.
    if found.waits_for != "a lock of Python" or not frames or _waits_for_news(frames[0]):
        return
    if all(_waits_for_news(thread.frames[0]) for thread in evidence.other_threads or () if thread.frames):
        yield Reason(
            "nobody_can_hold_it",
            f"no thread here can hold the lock it waits for; its parent had {found.parent_threads} when it forked",
        )


def _waits_for_news(frame: PythonFrame) -> bool:
    """In the standard library's own waits: for an event, for work, for somebody who connects."""
    return frame.file.endswith(WAITING_ROOMS) and frame.function not in ("acquire", "__enter__")


def _gave_up(evidence: Evidence) -> bool:
    """Some run-time libraries see that they were forked in the middle, and abort."""
    return signals.family_of(signal_of(evidence)) in ("abort", "fault")


def sentence(evidence: Evidence) -> str:
    if _gave_up(evidence):
        return "It was forked while another thread was at work, and could not go on as a child."
    return "It was forked while another thread held a lock, and waits for that lock for ever."


def facts(evidence: Evidence) -> Facts:
    found, hang = first(evidence, "fork-deadlock", "fork-hint"), evidence.hang
    return {
        "line": found.line if found else None,
        "lock_owner": hang.lock.owner if hang and hang.lock else None,
        "parent_threads": hang.parent_threads if hang else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="start workers without fork: `multiprocessing_context='spawn'` (DataLoader), `mp.get_context('forkserver')` (pools)"
    )
    if any("objc" in one.quote for one in said(evidence, "fork-deadlock", "fork-hint")):
        yield Step(
            text="macOS: its run-time library aborts then; to let it go on all the same, at your risk:",
            command="export OBJC_DISABLE_INITIALIZE_FORK_SAFETY=YES",
        )
    yield Step(
        text="OpenCV: `cv2.setNumThreads(0)` in worker_init_fn; tokenizers: TOKENIZERS_PARALLELISM=false; OpenMP: one thread:",
        command="export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false",
    )
    if evidence.hang is None and not _gave_up(evidence):
        yield Step(
            text="see where a worker waits, and for what:",
            command="lastwords run --hang-after 60 -- python YOUR_JOB.py",
        )


CAUSE = Cause(
    id="fork-deadlock",
    title="A lock was held when the process was forked",
    doc=__doc__,
    needs=("hang", "mentions"),
    prior=-3.0,
    weights={
        "owner_left_behind": 6.5,
        "nobody_can_hold_it": 5.0,
        "said_so": 5.0,
        "forked_with_threads": 1.5,
        "stands_still": 2.9,
        "waits": 1.1,
        "waits_for_lock": 1.8,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("fork-deadlock", "text:fork-deadlock"),
    near_misses=("text:hang", "text:collective-timeout"),
)
