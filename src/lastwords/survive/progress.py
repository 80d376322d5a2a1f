"""A line that shows how far a pool is, where somebody asked for one: with rich, with tqdm, or with a function."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

log = logging.getLogger("lastwords.survive")
SECONDS = 0.1
"""Between two updates: a screen is not read more often."""

Kind = Literal["rich", "tqdm"] | Callable[[dict[str, int]], object]


class Progress:
    """Lives on the owner's thread. `count` gives done, total, retried and poisoned."""

    def __init__(self, kind: Kind, count: Callable[[], dict[str, int]], unit: str = "task") -> None:
        """Raises ImportError where the one that was asked for is not installed."""
        self._count = count
        self._unit = unit
        self._shown_at = 0.0
        self._close: Callable[[], object] | None = None
        if callable(kind):
            self._show: Callable[[dict[str, int]], object] = kind
        elif kind == "tqdm":
            self._begin_tqdm()
        elif kind == "rich":
            self._begin_rich()
        else:
            raise ValueError(f"progress is 'rich', 'tqdm' or a callable, not {kind!r}")

    def pass_time(self) -> None:
        now = time.monotonic()
        if now >= self._shown_at + SECONDS:
            self._shown_at = now
            self._tell()

    def close(self) -> None:
        self._tell()
        if self._close is not None:
            self._close()

    def _tell(self) -> None:
        """A function of the user's that raises costs the progress, and not the pool."""
        try:
            self._show(self._count())
        except Exception:
            log.exception("progress is not shown any more: its function raised")
            self._show = _show_nothing

    def _begin_tqdm(self) -> None:
        from tqdm.auto import tqdm

        bar: Any = tqdm(total=0, unit=self._unit)

        def show(counts: dict[str, int]) -> None:
            bar.total, bar.n = counts["total"], counts["done"]
            bar.set_postfix_str(_words(counts))

        self._show, self._close = show, bar.close

    def _begin_rich(self) -> None:
        from rich import progress

        columns = (*progress.Progress.get_default_columns(), progress.TextColumn("{task.fields[words]}"))
        bar = progress.Progress(*columns)
        task = bar.add_task(f"{self._unit}s", total=0, words="")
        bar.start()

        def show(counts: dict[str, int]) -> None:
            bar.update(task, total=counts["total"], completed=counts["done"], words=_words(counts))

        self._show, self._close = show, bar.stop


def _show_nothing(counts: dict[str, int]) -> None:
    """After an error."""


def _words(counts: dict[str, int]) -> str:
    return f"{counts['retried']} retried, {counts['poisoned']} poisoned"
