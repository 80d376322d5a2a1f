"""What a benchmark hands back, and the table it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Result:
    """Ours against a peer, measured side by side: absolute times belong to one machine, the ratio travels."""

    name: str
    ours: float
    peer: float
    unit: str
    limit: float | None = None  # None: for information
    better: Literal["lower", "higher"] = "lower"
    interval: tuple[float, float] | None = None  # of the ratio, 95 %

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def ok(self) -> bool:
        if self.limit is None:
            return True
        return self.ratio <= self.limit if self.better == "lower" else self.ratio >= self.limit

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return "–"
        return "ok" if self.ok else "MISSED"

    def cells(self) -> list[str]:
        interval = "" if self.interval is None else f" ({self.interval[0]:.3f} to {self.interval[1]:.3f})"
        return [
            self.name,
            f"{self.ours:.4g} {self.unit}",
            f"{self.peer:.4g} {self.unit}",
            f"{self.ratio:.3f}{interval}",
            "–" if self.limit is None else f"{'≤' if self.better == 'lower' else '≥'} {self.limit:g}",
            self.verdict,
        ]


HEADER = ["benchmark", "ours", "peer", "ratio (95 %)", "limit", "verdict"]


def table(results: list[Result]) -> str:
    """A table that reads well both on a terminal and as Markdown."""
    rows = [HEADER, *(result.cells() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
