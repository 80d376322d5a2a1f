"""`python -m tests.prevent.ground_truth [tuned|scored] [CPU...]`: every package, for real; writes docs/scan-ground-truth.md.

`make ground-truth` calls it. It downloads gigabytes and takes an hour or two: CI runs a part of it, in
tests/prevent/test_scan_packages.py.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lastwords.prevent import cpus
from lastwords.prevent.scan import read, verdicts
from tests.prevent.ground_truth import packages
from tests.prevent.ground_truth.packages import LISTS, Outcome

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "scan-ground-truth.md"
RECORDED = Path(__file__).with_name("recorded.json")
DEFAULT_CPUS = ("Nehalem", "SandyBridge")


def main() -> int:
    words = sys.argv[1:]
    chosen = [word for word in words if word in LISTS] or ["tuned", "scored"]
    emulated = [word for word in words if word not in LISTS] or list(DEFAULT_CPUS)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in chosen:
        recorded[name] = list(_rows(name, emulated))
    recorded["date"] = time.strftime("%Y-%m-%d")
    recorded["python"] = platform.python_version()
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(recorded))
    return 1 if any(row["mistake"] for name in chosen for row in recorded[name]) else 0


def _rows(name: str, emulated: list[str]) -> Iterator[dict[str, str | None]]:
    site = ROOT / ".venv" / f"ground-truth-{name}"
    with tempfile.TemporaryDirectory() as folder:
        teller = packages.compile_teller(Path(folder))
        for package in LISTS[name]:
            _try_to_install(package, site)
        subjects = read([site])
        for cpu in emulated:
            have = cpus.named(packages.archspec_name(cpu))
            said = {str(Path(one.path).resolve()): one for one in verdicts(subjects, have.features, "x86_64")}
            for package, workload in LISTS[name].items():
                outcome = packages.run(package, workload, cpu, site, teller)
                yield row(outcome, {path: one.verdict for path, one in said.items()}, _version(site, package))


def _try_to_install(package: str, site: Path) -> None:
    try:
        packages.install([package], site)
    except subprocess.CalledProcessError:
        print(f"{package}: pip cannot install it here", file=sys.stderr)


def row(outcome: Outcome, said: dict[str, str], version: str | None) -> dict[str, str | None]:
    library = outcome.library
    return {
        "package": outcome.package,
        "version": version,
        "cpu": outcome.cpu,
        "end": outcome.end,
        "library": Path(library).name if library else None,
        "verdict": said.get(library) if library else None,
        "mistake": "; ".join(packages.mistakes(outcome, said)) or None,
    }


def _version(site: Path, package: str) -> str | None:
    from importlib.metadata import distributions

    wanted = package.replace("_", "-").lower()
    for found in distributions(path=[str(site)]):
        if found.metadata["Name"].replace("_", "-").lower() == wanted:
            return found.version
    return None


def page(recorded: dict) -> str:
    lines = [
        "# Scan: ground truth",
        "",
        f"Recorded on {recorded['date']}, Python {recorded['python']}, qemu-user; `make ground-truth` records it anew. Each package was",
        "imported and did a little work on an emulated CPU; `lastwords scan` read its libraries without running them.",
        "How it is scored, and the workloads: `tests/prevent/ground_truth`.",
    ]
    for name, title in (
        ("scored", "Packages that set no threshold"),
        ("tuned", "Packages on which thresholds were set"),
    ):
        lines += ["", f"## {title}", "", *_table(recorded.get(name, []))]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict]) -> Iterator[str]:
    emulated = list(dict.fromkeys(row["cpu"] for row in rows))
    yield "| CPU | packages | ran | accused wrongly | died | of these foretold |"
    yield "|---|---|---|---|---|---|"
    for cpu in emulated:
        own = [row for row in rows if row["cpu"] == cpu and row["end"] in {"ran", "died"}]
        ran = [row for row in own if row["end"] == "ran"]
        died = [row for row in own if row["end"] == "died"]
        judged = [row for row in died if row["verdict"] is not None]
        told = [row for row in judged if row["verdict"] != "ok"]
        wrong = [row for row in ran if row["mistake"]]
        yield f"| {cpu} | {len(own)} | {len(ran)} | {len(wrong)} | {len(judged)} | {len(told)} |"
    yield ""
    yield "Died: " + (", ".join(_died(row) for row in rows if row["end"] == "died") or "none") + "."
    yield ""
    every = dict.fromkeys(
        f"{row['package']} {row['version'] or ''}".strip() for row in rows if row["end"] in {"ran", "died"}
    )
    yield "All: " + ", ".join(every) + "."
    other = [
        f"{row['package']} on {row['cpu']} ({row['end']})"
        for row in rows
        if row["end"] not in {"ran", "died"}
    ]
    if other:
        yield ""
        yield "Neither ran nor died: " + "; ".join(other).replace("|", "/") + "."


def _died(row: dict) -> str:
    return f"{row['package']} on {row['cpu']} in {row['library'] or 'code made at run time'} ({row['verdict'] or 'no file to judge'})"


if __name__ == "__main__":
    sys.exit(main())
