"""torch.multiprocessing.spawn: the exception that names a dead process carries its explanation.

`ProcessRaisedException` and `ProcessExitedException` stay what they are, and get a note.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from lastwords.engines import notes
from lastwords.engines.contract import Engine

ENGINE = Engine("torch.multiprocessing.spawn", tested=("2.15",))
_children: Any = None


def adapt(module: ModuleType) -> None:
    begin, explain = ENGINE.guarded(_begin), ENGINE.guarded(_explain)
    init, join = module.ProcessContext.__init__, module.ProcessContext.join

    @functools.wraps(init)
    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        begin(self)

    @functools.wraps(join)
    def joined(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return join(self, *args, **kwargs)
        except module.ProcessException as error:
            explain(self, error)
            raise

    module.ProcessContext.__init__ = initialised
    module.ProcessContext.join = joined


def _begin(context: Any) -> None:
    global _children
    from lastwords.engines.children import Children

    ENGINE.is_tested(sys.modules["torch"].__version__.partition("+")[0])
    _children = _children or Children()
    for pid in context.pids():
        _children.add(pid)


def _explain(context: Any, error: Any) -> None:
    from lastwords import postmortem
    from lastwords.engines.children import wait_status

    process = context.processes[error.error_index]
    diagnosis = _children.examine(process.pid, wait_status(process.exitcode))
    text = postmortem.text(diagnosis, subject=f"process {error.error_index} of torch.multiprocessing.spawn")
    notes.add(error, text.rstrip("\n"))
