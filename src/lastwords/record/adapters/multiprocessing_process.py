"""multiprocessing.Process: its name and number, the exception that ended it, its orderly end."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from lastwords import _native
from lastwords.record.endings import record_exception


def adapt(module: ModuleType) -> None:
    bootstrap = module.BaseProcess._bootstrap

    @functools.wraps(bootstrap)
    def _bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        identity = getattr(self, "_identity", ())
        _native.describe(role=self.name, worker=identity[-1] if identity else None)
        # On the instance, and native: a traceback of `run` looks as it does without us.
        self.run = _native.Told(self.run, functools.partial(record_exception, fatal=True))
        code = bootstrap(self, *args, **kwargs)
        _native.end_sent()
        _native.say_exit(code if isinstance(code, int) else None)
        return code

    module.BaseProcess._bootstrap = _bootstrap
