"""A forked worker's process: as multiprocessing has it, except that what most workers never need waits.

A fork shares its parent's memory until one of them writes to it, and Python writes wherever it looks: it counts
references. What is made in the parent instead is no gain: its pages are copied for all workers that are there by then.
"""

from __future__ import annotations

import threading
from multiprocessing.context import BaseContext, ForkProcess
from typing import Any

from lastwords import recording

is_here = False
"""The current process is a `ForkedWorker`."""
_main_thread = threading.main_thread()
"""Kept: a fork from another thread forgets it, and taking it to pieces costs each worker ten pages."""


def kind_of(context: BaseContext) -> Any:
    """Of process to start a worker with. Somebody's own context has its own."""
    kind: Any = context.Process  # type: ignore[attr-defined]  # every context has it
    return ForkedWorker if kind is ForkProcess else kind


class ForkedWorker(ForkProcess):
    def run(self) -> None:
        global is_here  # noqa: PLW0603  # one worker is one process
        is_here = True
        super().run()

    @property
    def _config(self) -> dict[str, Any]:
        """Asked of the current process by each that is made, for a copy: that is when pools are adapted to."""
        recording.makes_processes()
        return self.__dict__["_config"]  # type: ignore[no-any-return]

    @_config.setter
    def _config(self, config: dict[str, Any]) -> None:
        self.__dict__["_config"] = config
