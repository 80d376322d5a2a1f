"""Adapting a library when the job imports it, and not a moment sooner.

A finder in front of `sys.meta_path` looks at the name alone; for the few that have an adapter it lets the
other finders find the module and has the adapter called once the module is ready. The loader stays the
library's own: only its `exec_module` is shadowed, once.
"""

from __future__ import annotations

import sys

from lastwords import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# A module may have more than one adapter; those of engines import heavy things when somebody has died, not before.
ADAPTERS = {
    "_pytest.config": "lastwords.engines.xdist",
    "billiard.pool": "lastwords.engines.celery",
    "celery.app.trace": "lastwords.engines.celery",
    "concurrent.futures.process": "lastwords.record.adapters.concurrent_futures lastwords.engines.process_pool",
    "datasets.utils.py_utils": "lastwords.record.adapters.datasets_shards lastwords.engines.datasets",
    "distributed.client": "lastwords.engines.dask",
    "distributed.nanny": "lastwords.engines.dask",
    "distributed.worker": "lastwords.engines.dask",
    "gunicorn.arbiter": "lastwords.engines.gunicorn",
    "gunicorn.http.wsgi": "lastwords.engines.gunicorn",
    "joblib.externals.loky.process_executor": "lastwords.record.adapters.loky_worker lastwords.engines.process_pool",
    "loky.process_executor": "lastwords.record.adapters.loky_worker lastwords.engines.process_pool",
    "multiprocess.pool": "lastwords.record.adapters.multiprocessing_pool lastwords.engines.multiprocessing_pool",
    "multiprocess.process": "lastwords.record.adapters.multiprocessing_process",
    "multiprocessing.pool": "lastwords.record.adapters.multiprocessing_pool lastwords.engines.multiprocessing_pool",
    "multiprocessing.process": "lastwords.record.adapters.multiprocessing_process",
    "pyspark.context": "lastwords.engines.spark.driver",
    "pyspark.core.context": "lastwords.engines.spark.driver",
    "pyspark.sql.connect.client.core": "lastwords.engines.spark.connect",
    "pyspark.worker": "lastwords.engines.spark.worker",
    "ray._private.log": "lastwords.record.adapters.ray_processes",
    "ray._private.serialization": "lastwords.engines.ray",
    "ray._private.worker": "lastwords.record.adapters.ray_processes lastwords.engines.ray",
    "ray.data._internal.execution.operators.map_transformer": "lastwords.engines.ray",
    "torch.distributed.elastic.multiprocessing.api": "lastwords.engines.torchrun",
    "torch.multiprocessing.spawn": "lastwords.record.adapters.torch_spawn lastwords.engines.torch_spawn",
    "torch.utils.data._utils.fetch": "lastwords.record.adapters.torch_fetch",
    "torch.utils.data._utils.signal_handling": "lastwords.record.adapters.torch_signals",
    "torch.utils.data.dataloader": "lastwords.record.adapters.torch_loader lastwords.record.adapters.torch_ranks "
    "lastwords.engines.torch_dataloader",
    "warnings": "lastwords.record.adapters.warnings",
}

OF_PROCESSES = frozenset(
    (
        "concurrent.futures.process",
        "joblib.externals.loky.process_executor",
        "loky.process_executor",
        "multiprocessing.process",
    )
)
"""Their adapters have nothing to do before somebody makes a `multiprocessing.Process` here. Not `multiprocessing.pool`: it
has looked up what it will have its processes do before it makes the first of them.
"""
_put_off: list[str] = []


def install(adapters: dict[str, str] = ADAPTERS, *, put_off: frozenset[str] = frozenset()) -> None:
    """`put_off`: of those that are loaded, the ones to be adapted by `catch_up`."""
    for name in adapters:
        module = sys.modules.get(name)
        if module is None:
            continue
        if name in put_off:
            _put_off.append(name)
        else:
            adapt(module, adapters)
    sys.meta_path.insert(0, _finder if adapters is ADAPTERS else _AfterImport(adapters))


def catch_up() -> None:
    while _put_off:
        module = sys.modules.get(_put_off.pop())
        if module is not None:
            adapt(module)


def adapt(module: ModuleType, adapters: dict[str, str] = ADAPTERS) -> None:
    """Calls the module's adapters. One that fails is off, with a line in the record, and nothing more."""
    for adapter in adapters.get(module.__name__, "").split():
        _call(adapter, module)


def _call(adapter: str, module: ModuleType) -> None:
    try:
        if adapter not in sys.modules:
            __import__(adapter)
        sys.modules[adapter].adapt(module)
    except Exception as error:
        _native.note(f"adapter of {module.__name__} is off: {type(error).__name__}: {error}")


class _AfterImport:
    """A meta path finder. Not derived from importlib.abc's class: importing that costs ten milliseconds."""

    def __init__(self, adapters: dict[str, str]) -> None:
        self._adapters = adapters

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._adapters:
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _shadow_exec(spec, self._adapters)
        return spec

    def _found_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    return spec
        return None


_finder = _AfterImport(ADAPTERS)


def _shadow_exec(spec: ModuleSpec, adapters: dict[str, str]) -> None:
    loader = spec.loader
    original = loader.exec_module  # type: ignore[union-attr]

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # type: ignore[union-attr]
        original(module)
        adapt(module, adapters)

    try:
        loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
    except AttributeError:
        pass  # A loader that takes no attributes (zipimport's): the job runs unadapted.
