"""gunicorn: the arbiter's log says why a worker died, and on which request.

lastwords run -- gunicorn app:app
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from lastwords import recording
from lastwords.engines.contract import Engine

ENGINE = Engine("gunicorn", tested=("27.0",))


def adapt(module: ModuleType) -> None:
    {"gunicorn.http.wsgi": _adapt_requests, "gunicorn.arbiter": _adapt_arbiter}[module.__name__](module)


def _adapt_requests(module: Any) -> None:
    create, close = module.create, module.Response.close
    begin, end = ENGINE.guarded(_begin), ENGINE.guarded(recording.end_item)

    @functools.wraps(create)
    def created(request: Any, *args: Any, **kwargs: Any) -> Any:
        begin(request)
        return create(request, *args, **kwargs)

    @functools.wraps(close)
    def closed(self: Any) -> Any:
        end()
        return close(self)

    module.create, module.Response.close = created, closed


def _begin(request: Any) -> None:
    """Without what follows the question mark: that may be a secret."""
    recording.begin_item(f"request {request.method} {request.path}")


def _adapt_arbiter(module: Any) -> None:
    reap, look, tell = module.Arbiter.reap_workers, ENGINE.guarded(_dead), ENGINE.guarded(_tell)

    @functools.wraps(reap)
    def reap_workers(self: Any) -> Any:
        dead = look(self.WORKERS)
        result = reap(self)
        if dead:
            tell(self.log, dead)
        return result

    module.Arbiter.reap_workers = reap_workers


def _dead(workers: Any) -> list[tuple[int, int]]:
    """Pid and returncode of those that have ended. Only looked at: the arbiter waits for them itself."""
    found = []
    for pid in list(workers):
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except OSError:
            continue
        if ended is not None:
            found.append((pid, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
    return found


def _tell(log: Any, dead: list[tuple[int, int]]) -> None:
    from lastwords import postmortem
    from lastwords.engines.children import account

    for pid, code in dead:
        # Told to stop, or done with max_requests: nothing in its hands.
        if code < 0 or postmortem.item_age(pid) is not None:
            text = account(pid, code, "gunicorn worker")
            if text:
                log.error("%s", text)
