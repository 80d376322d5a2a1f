"""Ray: our crash handler stays in front of its own, and its servants are left out.

Each process that connects to Ray installs Abseil's failure handler for the crash signals.
"""

from __future__ import annotations

import sys
from types import ModuleType

from lastwords import _native
from lastwords.record.kept import drop_own_box

# Ray runs these itself, and ends them by SIGKILL when a job is over: no death of anybody's worker. (2.60)
SERVANTS = (
    "ray/dashboard/agent.py",
    "ray/dashboard/dashboard.py",
    "ray/_private/log_monitor.py",
    "ray/_private/runtime_env/agent/main.py",
    "ray/autoscaler/_private/monitor.py",
)


WORKER = "ray/_private/workers/default_worker.py"


def adapt(module: ModuleType) -> None:
    if module.__name__ == "ray._private.worker":
        module.connect = _native.behind_us(module.connect)  # type: ignore[attr-defined]
    elif any(word.endswith(SERVANTS) for word in sys.orig_argv):
        drop_own_box()
    elif any(word.endswith(WORKER) for word in sys.orig_argv):
        # Already now: Ray starts more workers than it needs, and may end one before it has come to anything.
        _native.describe(role="Ray worker")
