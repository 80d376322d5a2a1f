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

ADAPTERS = {
    "concurrent.futures.process": "lastwords.record.adapters.concurrent_futures",
    "multiprocessing.process": "lastwords.record.adapters.multiprocessing_process",
    "torch.utils.data._utils.fetch": "lastwords.record.adapters.torch_fetch",
    "torch.utils.data._utils.signal_handling": "lastwords.record.adapters.torch_signals",
    "warnings": "lastwords.record.adapters.warnings",
}


def install() -> None:
    for name in ADAPTERS:
        module = sys.modules.get(name)
        if module is not None:
            adapt(module)
    sys.meta_path.insert(0, _AfterImport())


def adapt(module: ModuleType) -> None:
    """Calls the module's adapter. One that fails is off, with a line in the record, and nothing more."""
    try:
        adapter = ADAPTERS[module.__name__]
        __import__(adapter)
        sys.modules[adapter].adapt(module)
    except Exception as error:
        _native.note(f"adapter of {module.__name__} is off: {type(error).__name__}: {error}")


class _AfterImport:
    """A meta path finder. Not derived from importlib.abc's class: importing that costs ten milliseconds."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in ADAPTERS:
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _shadow_exec(spec)
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


def _shadow_exec(spec: ModuleSpec) -> None:
    loader = spec.loader
    original = loader.exec_module  # type: ignore[union-attr]

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # type: ignore[union-attr]
        original(module)
        adapt(module)

    try:
        loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
    except AttributeError:
        pass  # A loader that takes no attributes (zipimport's): the job runs unadapted.
