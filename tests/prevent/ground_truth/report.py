"""docs/scan-ground-truth.md from what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scan-ground-truth.md"
TITLES = {"scored": "Packages that set no threshold", "tuned": "Packages on which thresholds were set"}


def page(recorded: dict) -> str:
    lines = [
        "# Scan: ground truth",
        "",
        f"Recorded on {recorded['date']}, Python {recorded['python']}, {recorded['qemu']}; `make ground-truth` records it anew. Each",
        "package was installed alone, imported, and did a little work on an emulated CPU; `lastwords scan` read its libraries",
        "without running them. How it is scored, and the workloads: `tests/prevent/ground_truth`. Nehalem has no AVX,",
        "SandyBridge has AVX and neither AVX2 nor FMA.",
        "",
        "A library that was loaded in a process that ended well is **accused** if the scan says `will-crash`, **doubted** if it",
        "says `may-crash`. A death is **foretold** if the scan says either of the library that died, and at the **right level**",
        "if the extension of the very instruction is among those it names. Precision: foretold deaths among all `will-crash`",
        "that were put to the test. Recall: foretold deaths among all.",
    ]
    for name, title in TITLES.items():
        lines += ["", f"## {title}", "", *_table(recorded.get(name, []))]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict]) -> Iterator[str]:
    yield "| CPU | packages | ran | their libraries | accused | doubted | died | foretold | right level | precision | recall |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for cpu in dict.fromkeys(row["cpu"] for row in rows):
        yield _line(cpu, [row for row in rows if row["cpu"] == cpu and row["end"] in {"ran", "died"}])
    yield ""
    yield f"Died: {', '.join(_died(row) for row in rows if row['end'] == 'died') or 'none'}."
    yield ""
    every = dict.fromkeys(
        f"{row['package']} {row['version'] or ''}".strip() for row in rows if row["end"] in {"ran", "died"}
    )
    yield f"All: {', '.join(every)}."
    mistakes = [row["mistake"] for row in rows if row["mistake"]]
    if mistakes:
        yield ""
        yield f"Mistakes: {'; '.join(_short(text) for text in mistakes)}."
    other = [
        f"{row['package']} on {row['cpu']} ({row['end']})"
        for row in rows
        if row["end"] not in {"ran", "died"}
    ]
    if other:
        yield ""
        yield f"Neither ran nor died, and not counted: {_short('; '.join(other))}."


def _line(cpu: str, rows: list[dict]) -> str:
    ran = [row for row in rows if row["end"] == "ran"]
    died = [row for row in rows if row["verdict"] is not None]
    libraries, accused, doubted = (
        sum(sum(count for verdict, count in row["loaded"].items() if verdict in which) for row in ran)
        for which in ({"ok", "may-crash", "will-crash"}, {"will-crash"}, {"may-crash"})
    )
    foretold = [row for row in died if row["verdict"] != "ok"]
    right = [row for row in foretold if not row["lacked"] or set(row["lacked"]) & set(row["missing"])]
    certain = sum(row["verdict"] == "will-crash" for row in foretold)
    numbers = [len(rows), len(ran), libraries, accused, doubted, len(died), len(foretold), len(right)]
    shares = [_share(certain, certain + accused), _share(len(right), len(died))]
    return f"| {cpu} | {' | '.join(map(str, [*numbers, *shares]))} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _died(row: dict) -> str:
    where = row["library"] or "code made at run time"
    lacked = f", {' '.join(row['lacked'])}" if row["lacked"] else ""
    return f"{row['package']} on {row['cpu']} in {where} ({row['verdict'] or 'no file to judge'}{lacked})"


def _short(text: str) -> str:
    """Without the folders of this machine, and fit for a table."""
    root = f"{Path(__file__).resolve().parents[3]}/build/ground-truth/sites/"
    return text.replace(root, "").replace("|", "/")
