"""multiprocessing.Pool: a worker that dies takes its task along, the pool starts another, and whoever waits for the
result waits for ever. Nothing is raised that could carry a note, so the account goes to standard error, at once.

`multiprocess`, the copy that Hugging Face datasets uses for `num_proc`, is the same; datasets itself then raises.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastwords.engines.contract import Engine


_accounts: deque[str] = deque(maxlen=4)


def last_accounts() -> list[str]:
    """Of workers that have died; each is given away once."""
    found = list(_accounts)
    _accounts.clear()
    return found


def adapt(module: ModuleType) -> None:
    kind: Any = module.Pool
    join = kind._join_exited_workers

    # The pool is woken when a worker's files close, and that is a moment before it can be waited for. One that is
    # still alive when it is looked at here, and dead when the pool looks, would go untold: the pool is shown only
    # those that were. It looks again at once, for the others. (Seen as a RuntimeError of datasets without its note)
    @functools.wraps(join)
    def _join_exited_workers(pool: Any) -> Any:
        ended = [worker for worker in pool if worker.exitcode is not None]
        if not ended:
            return False  # a pool looks whenever a result has come
        for worker in ended:
            _engine().guarded(_tell)(worker)
        cleaned = join(list(ended))
        for worker in ended:
            pool.remove(worker)
        return cleaned

    kind._join_exited_workers = staticmethod(_join_exited_workers)


@functools.cache
def _engine() -> Engine:
    """Made when a worker has ended: every worker of a pool loads this file, and must load little."""
    from lastwords.engines.contract import Engine

    return Engine("multiprocessing.Pool", tested=("3.11",))


def _tell(worker: Any) -> None:
    from lastwords import postmortem
    from lastwords.engines.children import account

    # One that has reached maxtasksperchild ends with 0, and with nothing in its hands.
    if worker.exitcode == 0 and postmortem.item_age(worker.pid) is None:
        return
    waits = "its task has no answer: whoever waits for the result waits for ever"
    text = account(worker.pid, worker.exitcode, worker.name, waits)
    if text:
        _accounts.append(text)
    if not postmortem.is_watched():  # else `lastwords run` shows it
        sys.stderr.write(f"{text}\n")
    else:
        sys.stderr.write(
            f"lastwords: {worker.name} (pid {worker.pid}) of a multiprocessing.Pool is dead; {waits}\n"
        )
    sys.stderr.flush()
