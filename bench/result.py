"""What a benchmark hands back, and the table it becomes."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
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
    of_pairs: float | None = None  # the ratio, where the two were measured in pairs
    interval: tuple[float, float] | None = None  # of the ratio, 95 %

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.of_pairs is None else self.of_pairs

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


def paired(
    name: str,
    pairs: Sequence[tuple[float, float]],
    unit: str,
    *,
    limit: float | None = None,
    better: Literal["lower", "higher"] = "lower",
) -> Result:
    """The median of the pairs' own ratios, since the two of a pair share their moment and their luck.

    Not the ratio of the two medians, which come from different moments: of 48 pairs of the same thing on a machine with
    16 cores that was 1.014, where the pairs' own was 1.004.
    """
    return Result(
        name=name,
        ours=statistics.median(ours for ours, _ in pairs),
        peer=statistics.median(peer for _, peer in pairs),
        unit=unit,
        limit=limit,
        better=better,
        of_pairs=statistics.median(ours / peer for ours, peer in pairs),
        interval=interval(pairs),
    )


def interval(pairs: Sequence[tuple[float, float]], draws: int = 400) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median of the pairs' ratios."""
    rng = random.Random(0)
    ratios = [ours / peer for ours, peer in pairs]
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(draws * 0.025)], medians[int(draws * 0.975) - 1]


HEADER = ["benchmark", "ours", "peer", "ratio (95 %)", "limit", "verdict"]


def table(results: list[Result]) -> str:
    return aligned([result.cells() for result in results])


def aligned(cells: list[list[str]]) -> str:
    """A table that reads well both on a terminal and as Markdown."""
    rows = [HEADER, *cells]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def merged(before: str, results: list[Result]) -> str:
    """The table `before`, with these results in the place of older ones of the same name, and new ones at its end.

    What stands in brackets behind a name (who the peer is, how many runs) may differ from run to run.
    """
    rows = {
        _name(cells): cells
        for line in before.splitlines()[2:]
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == len(HEADER)
    }
    rows.update({_name(cells): cells for cells in (result.cells() for result in results)})
    return aligned(list(rows.values()))


def _name(cells: list[str]) -> str:
    return cells[0].partition(" (")[0]
