"""pytest-xdist: the report of a crashed worker says why, below the test that it ran.

lastwords run -- pytest -n 4
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from lastwords import recording
from lastwords.engines.contract import Engine

ENGINE = Engine("pytest-xdist", tested=("3.8",))
PATIENCE = 5.0


def adapt(module: ModuleType) -> None:
    """Of `_pytest.config`: pytest imports its plugins by a finder of its own, so they are met when all are there."""
    config: Any = module.Config
    configure, meet = config._do_configure, ENGINE.guarded(_meet)

    @functools.wraps(configure)
    def _do_configure(self: Any) -> Any:
        result = configure(self)
        meet(self)
        return result

    config._do_configure = _do_configure


def _meet(config: Any) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Marker())
    elif "xdist.dsession" in sys.modules and not _adapted:
        ENGINE.is_tested(sys.modules["xdist"].__version__)
        _adapted.append(True)
        _adapt_session(sys.modules["xdist.dsession"])


_adapted: list[bool] = []


class _Marker:
    """A plugin, in a worker: the test that it runs is its item."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        recording.begin_item(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        recording.end_item()


def _adapt_session(module: Any) -> None:
    handle = module.DSession.handle_crashitem

    @functools.wraps(handle)
    def handle_crashitem(self: Any, nodeid: str, worker: Any) -> Any:
        text = ENGINE.guarded(_explained)(worker)
        if text is None:
            return handle(self, nodeid, worker)
        teller = _Teller(text)
        self.config.pluginmanager.register(teller)
        try:
            return handle(self, nodeid, worker)
        finally:
            self.config.pluginmanager.unregister(teller)

    module.DSession.handle_crashitem = handle_crashitem


def _explained(worker: Any) -> str | None:
    from lastwords.engines.children import account

    process = worker.gateway._io.popen
    return account(process.pid, process.wait(PATIENCE), f"worker {worker.gateway.id}") or None


class _Teller:
    """A plugin for one crash, by the hook that xdist has for that."""

    def __init__(self, text: str) -> None:
        self._text = text

    def pytest_handlecrashitem(self, report: Any) -> None:
        report.longrepr = f"{report.longrepr}\n{self._text}"
