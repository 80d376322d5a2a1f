"""concurrent.futures.ProcessPoolExecutor, loky, and joblib, which has a loky of its own: the exception that every
waiting future gets says which worker died, of what, and on which task.

loky's exception gets a note. The standard library makes its own where nobody can reach it, but shows what it is told
as the exception's cause: there the account stands, and `BrokenProcessPool` is what it was.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lastwords.engines import notes

if TYPE_CHECKING:
    from lastwords.engines.contract import Engine

PATIENCE = 0.5
"""Seconds for a worker whose pipe has broken to be quite dead."""
MOST = 3
"""Workers that are explained in one exception; they mostly died of the same."""


def adapt(module: ModuleType) -> None:
    is_standard = module.__name__ == "concurrent.futures.process"
    kind: Any = module._ExecutorManagerThread
    terminate = kind.terminate_broken

    @functools.wraps(terminate)
    def terminate_broken(self: Any, error: Any) -> Any:
        text = _engine().guarded(_accounts)(self.processes)
        if text and is_standard:
            error = [*(error or ()), text, "\n"]
        elif text:
            notes.add(error, text)
        return terminate(self, error)

    kind.terminate_broken = terminate_broken


@functools.cache
def _engine() -> Engine:
    """Made when something has broken: every worker of a pool loads this file, and must load little."""
    from lastwords.engines.contract import Engine

    return Engine("process pool", tested=("3.11",))


def _accounts(processes: Any) -> str:
    from lastwords.engines.children import account, wait_for_any_end

    workers = [one for one in list((processes or {}).values()) if one is not None]
    wait_for_any_end([one.pid for one in workers], PATIENCE)
    dead = [one for one in workers if one.exitcode is not None]
    return "\n".join(filter(None, (account(one.pid, one.exitcode, one.name) for one in dead[:MOST])))
