"""`python -m tests.prevent.ground_truth [tuned|scored] [CPU...] [--minutes N]`: packages for real, against the scan.

`make ground-truth` calls it; it writes docs/scan-ground-truth.md. What was run once is kept (truth.py), so it can be
stopped and called again. It downloads gigabytes; CI runs a part of it, in tests/prevent/test_scan_packages.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from lastwords import _native
from lastwords.prevent import cpus
from lastwords.prevent.scan import read, verdicts
from lastwords.prevent.scan_model import Library
from tests.prevent.ground_truth import packages, report, truth
from tests.prevent.ground_truth.compiled import CPUS
from tests.prevent.ground_truth.packages import LISTS, Outcome

RECORDED = Path(__file__).with_name("recorded.json")
DEFAULT_CPUS = ["Nehalem", "SandyBridge"]
MINUTES = 120.0


def main() -> int:
    words = _words()
    lists = [word for word in words.what if word in LISTS] or ["scored", "tuned"]
    emulated = [word for word in words.what if word in CPUS] or DEFAULT_CPUS
    until = time.monotonic() + words.minutes * 60
    for name in lists:
        truth.find(LISTS[name], emulated, until)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    recorded |= {name: list(_rows(name, emulated)) for name in lists}
    recorded |= {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "qemu": truth.emulator(),
    }
    RECORDED.write_text(_text(recorded))
    report.PAGE.write_text(report.page(recorded))
    mistakes = [row["mistake"] for name in lists for row in recorded[name] if row["mistake"]]
    print("\n".join([*mistakes, f"{len(mistakes)} mistakes; {report.PAGE.name} is written"]))
    return 1 if mistakes else 0


def _text(recorded: dict) -> str:
    """A line for each row, so that a difference can be read."""
    rows = {
        name: "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        if isinstance(value, list)
        else json.dumps(value)
        for name, value in sorted(recorded.items())
    }
    return "{\n" + ",\n".join(f' "{name}": {value}' for name, value in rows.items()) + "\n}\n"


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make ground-truth GROUND_TRUTH=")
    parser.add_argument("what", nargs="*", help=f"tuned, scored, or CPUs: {', '.join(CPUS)}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="begin nothing new after that time")
    words = parser.parse_args()
    if unknown := set(words.what) - {"tuned", "scored", *CPUS}:
        parser.error(f"neither a list nor a CPU: {', '.join(sorted(unknown))}")
    return words


def _rows(name: str, emulated: list[str]) -> Iterator[dict]:
    present = [package for package in LISTS[name] if truth.site_of(package).exists()]
    subjects = read([truth.site_of(package) for package in present], home=_scans())
    for cpu in emulated:
        have = cpus.named(packages.archspec_name(cpu))
        said = {_identity(one.path): one for one in verdicts(subjects, have.features, "x86_64")}
        for package in present:
            outcome = truth.known(package, cpu)
            if outcome is not None:
                yield _row(outcome, _said_of(outcome, said))


def _said_of(outcome: Outcome, said: dict[tuple[int, int], Library]) -> dict[str, Library]:
    paths = [path for path in (*outcome.loaded, outcome.library) if path and os.path.exists(path)]
    return {path: said[_identity(path)] for path in paths if _identity(path) in said}


def _identity(path: str) -> tuple[int, int]:
    """uv links a file into several folders, and a scan reads it once."""
    about = os.stat(path)
    return about.st_dev, about.st_ino


def _scans() -> Path:
    """What this very scanner said of each library, by build-id."""
    scanner = hashlib.sha256(Path(str(_native.__file__)).read_bytes()).hexdigest()[:16]
    return truth.KEPT / "scans" / scanner


def _row(outcome: Outcome, said: dict[str, Library]) -> dict:
    judged = said.get(outcome.library or "")
    counted: dict[str, int] = defaultdict(int)
    for path in outcome.loaded:
        if path in said:
            counted[said[path].verdict] += 1
    return {
        "package": outcome.package,
        "version": truth.versions(outcome.package).get(outcome.package.replace("_", "-").lower()),
        "cpu": outcome.cpu,
        "end": outcome.end,
        "loaded": dict(counted),
        "library": Path(outcome.library).name if outcome.library else None,
        "lacked": sorted(packages.needs_of(outcome)),
        "verdict": judged.verdict if judged else None,
        "missing": list(judged.missing) if judged else [],
        "mistake": "; ".join(packages.mistakes(outcome, said)) or None,
    }


if __name__ == "__main__":
    sys.exit(main())
