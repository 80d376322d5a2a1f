"""Threads and processes that got in each other's way, and those that wait without end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.hedges import SUSPECTED
from lastwords.evidence.text.python_traceback import raised
from lastwords.evidence.text.reader import Reader, mention, says

_WAITS = re.compile(
    r"selectors\.py:select|threading\.py:(?:wait|acquire|_wait_for_tstate_lock|join)|queues?\.py:(?:get|put)"
    r"|popen_fork\.py:(?:poll|wait)|connection\.py:(?:_poll|poll|wait|_recv|recv|recv_bytes|_recv_bytes)|synchronize\.py:\S{0,20}"
    r"|process\.py:join|_base\.py:(?:result|wait)|pool\.py:(?:wait|get|join)|dataloader\.py:(?:_try_get_data|_get_data|__next__)"
    r"|distributed_c10d\.py:\w{1,40}|concurrent/futures/\S{1,40}:(?:result|wait)"
)


def _waiting(excerpt: Excerpt) -> Iterator[Mention]:
    """Somebody pressed Ctrl-C, and the traceback shows what it waited for."""
    for one in raised(excerpt):
        places = " ".join(f"{frame.file}:{frame.function}" for frame in one.frames[:6])
        if one.kind.endswith("KeyboardInterrupt") and _WAITS.search(places):
            yield mention("waiting", excerpt, one.at, "python", {"where": places[:200]})
    if "^ctraceback" in excerpt.lower:
        for index in excerpt.with_needle("^ctraceback", 2):
            yield mention("waiting", excerpt, index, "python")


READER = Reader(
    "python",
    (
        says("waiting", "queues.py", r"multiprocessing/queues\.py\", line \d{1,6},? in get"),
        says("lock-wait", "lock|_wait|gomp|kmp", r"__lll_lock_wait|pthread_mutex_lock|__futex_abstimed_wait|pthread_cond_wait|sem_wait|do_futex_wait|futex_wait|GOMP_parallel|gomp_team_barrier_wait|__kmp_\w{0,30}(?:barrier|wait)", unless=r"\)\s{1,40}= -?\d"),
        says("lock-wait", "_wait", r"gomp_team_barrier_wait|gomp_barrier_wait|futex_wait|do_futex_wait|sem_wait|pthread_cond_wait", unless=r"\)\s{1,40}= -?\d"),
        says("lock-wait", "acquire|pymutex_lock", r"PyThread_acquire_lock|acquire_timed|\bacquire \((?:threading|logging/)|_PyMutex_Lock|PyMutex_Lock"),
        says("lock-wait", "logging/__init__", r"\b(?:emit|handle|acquire) \(logging/__init__\.py"),
        says("interrupted", "keyboardinterrupt", r"KeyboardInterrupt"),
        says("data-race", "during iteration", r"(?:dictionary|Set|OrderedDict|deque|list) (?:changed size|mutated) during iteration"),
        says("data-race", "mutated during iteration"),
        says("data-race", "race", r"race condition (?:detected|between|in)|data race"),
        says("data-race", "thread|concurrent", r"(?:is )?not thread[- ]safe|from multiple threads|concurrent (?:access|modification|use)|ConcurrentModificationException|used by (?:another|two) threads?"),
        says("data-race", "same thread", r"can only be used in that same thread"),
        says("data-race", "recursive use of cursors"),
        says("data-race", "already executing|reentrant", r"generator already executing|reentrant call inside"),
        says("data-race", "borrowed", r"Already (?:mutably )?borrowed"),
        says("data-race", "simultaneous|in progress", r"second simultaneous|concurrent operation .{0,20}in progress|another operation is in progress"),
        says("fork-deadlock", "process forked|side of fork", r"multi-threaded process forked|crashed on child side of fork", sure=True),
        # As mail wraps it, too.
        says("shared-state", "record mac", r"decryption failed or bad record mac|^\s{0,8}(?:bad )?record mac\b"),
        says("shared-state", "lost synchronization with server"),
        says("shared-state", "pgres_tuples_ok", r"PGRES_TUPLES_OK and no message from the libpq"),
        says("shared-state", "commands out of sync"),
        says("shared-state", "packet sequence number wrong"),
        says("shared-state", "mongoclient opened before fork"),
        says("shared-state", "fork|process|parent", r"(?:opened|created|connected|initiali[sz]ed|inherited) (?:before|across|from|over) (?:a |the )?(?:parent|fork)|shared (?:between|across|by) (?:forked |worker )?processes|not fork[- ]safe|used in a different process|different process than (?:the )?(?:one )?"),
        says("shared-state", "b-tree|inflate", r"wrong B-tree signature|inflate\(\) failed"),
        says("shared-state", "random|worker", r"identical random (?:numbers|augmentation|seeds?)|workers? (?:produce|return|use)s? (?:the )?(?:same|identical) (?:random|augment|seed)"),
        says("shared-state", "state|mutable", r"(?:module|class|global)[- ]level (?:mutable )?state|shared mutable"),
        says("deadlock", "deadlock", r"(?:possible|potential|detected|probable)? ?deadlock(?!s?, use)(?! detected by)", unless=rf"{SUSPECTED}|(?:avoid|prevent)\w{{0,3}} (?:a |any |the )?(?:possible |potential )?deadlock|may lead to deadlock"),
        says("no-progress", "stuck", r"(?:worker|process|job|rank|task|thread|training|loader|it) .{0,30}(?:is |gets |got |appears |seems )?stuck"),
        says("no-progress", "hang|hung|froze", r"\b(?:hangs|hung|hanging|is hanging|appears to hang|froze)\b", unless=r"typically|usually|often|may|might|could|can", told="by somebody who watched"),
        says("hang-guess", "hang|hung", r"(?:typically|usually|often|may|might|could|can) .{0,60}\b(?:hang|hangs|hung|hanging)\b"),
        says("no-progress", "progress", r"no progress (?:for|in|since)|(?:made|making) no progress|not (?:made|making) (?:any )?progress"),
        says("no-progress", "has been|still", r"\b(?:step|task|item|batch|request|call|iteration|job|worker|rank|process|it)\b.{0,60}(?:has been (?:running|waiting|blocked|pending)|still (?:running|waiting|blocked)) (?:for|after) \d[\d.]{0,9} ?(?:s|secs?|seconds|m|min|minutes|h|hours)\b"),
        says("waiting", ".py:", r"^\s{0,12}(?:wait|get|put|acquire|select|poll|recv\w{0,8}|_recv\w{0,8}|join|result|_try_get_data|_wait_for_tstate_lock) \(\S{0,80}(?:threading|queues?|selectors|connection|synchronize|popen_fork|process|dataloader|_base)\.py:\d{1,6}\)"),
        says("no-progress", "reported|responded|sent", r"(?:hasn't|has not|did not|not) (?:reported|responded|sent).{0,40}(?:for|in|within) (?P<seconds>\d{1,7}) ?s"),
        says("io-stall", "waiting|i/o|io wait|io stall|io hang|state d|uninterruptible", r"waiting (?:for|on) (?:disk|I/?O|storage|NFS)|I/?O (?:wait|stall|hang)|state D \(disk sleep\)|uninterruptible"),
        says("io-stall", "slow|stalled", r"(?:slow|stalled) (?:read|write|I/?O|disk|storage|filesystem)"),
        says("io-error", "input/output error|errno 5]", r"Errno 5\]|Input/output error"),
        says("cpu-starved", "throttl|cpu quota", r"(?:CPU|cfs|nr_)_?throttl|throttled by cgroup|CPU quota"),
        says("cpu-starved", "oversubscri", r"(?:CPU|core)s? oversubscri|oversubscri.{0,20}(?:CPU|core|thread)"),
        says("cpu-starved", "load average", r"load average[s:]{0,2} {0,2}(?:\d{3,}|[3-9]\d)\."),
        says("cpu-starved", "starv|the gil", r"(?:CPU|thread|GIL|scheduler|processor)[ -]starv|starv(?:ed|ing|ation) (?:of|for) CPU|held the GIL for"),
    ),
    _waiting,
)  # fmt: skip
