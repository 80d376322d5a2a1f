"""Runs one animal in one job under `lastwords run`, and brings back what was said."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo import native

ZOO = Path(__file__).parent
JOBS = ("plain", "pool", "dataloader")
LASTWORDS = (sys.executable, "-m", "lastwords")
TIME_LIMIT = 120


@dataclass(frozen=True)
class Outcome:
    """What a job printed, how it ended, and what lastwords recorded about it."""

    returncode: int
    stdout: str
    stderr: str
    deaths: list[dict[str, Any]]


def animals() -> list[str]:
    return sorted(path.parent.name for path in ZOO.glob("*/expect.json"))


def expected(death: str) -> dict[str, Any]:
    expectation: dict[str, Any] = json.loads((ZOO / death / "expect.json").read_text())
    return expectation


def missing(death: str) -> str | None:
    """What this machine lacks for that death, or None."""
    lacks = (_lack(need) for need in expected(death).get("needs", ()))
    return next((f"needs {lack}" for lack in lacks if lack), None)


def _lack(need: str) -> str | None:
    if need in ("cc", "c++"):
        return native.missing("zoonative" if need == "cc" else "zoothrows")
    if need == "x86_64" and platform.machine() != "x86_64":
        return f"x86-64, this is {platform.machine()}"
    if need == "unguarded-recursion" and sys.version_info >= (3, 12):
        return "Python 3.11 or older: later ones count recursion in C, whatever the limit is"
    return None


def command(death: str, job: str) -> list[str]:
    return [sys.executable, str(ZOO / "jobs" / f"{job}.py"), str(ZOO / death / "death.py")]


def environment(home: Path | None = None) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LASTWORDS")}
    variables["PYTHONPATH"] = str(ZOO.parent)
    if home is not None:
        variables["LASTWORDS_HOME"] = str(home)
    return variables


def run_alone(death: str, job: str) -> Outcome:
    """The job as its user runs it today, without lastwords."""
    done = start(command(death, job), environment())
    return Outcome(done.returncode, done.stdout, done.stderr, [])


def run(death: str, job: str, home: Path) -> Outcome:
    """The same job under `lastwords run`."""
    done = start([*LASTWORDS, "run", "--", *command(death, job)], environment(home))
    listed = start([*LASTWORDS, "list", "--json"], environment(home))
    return Outcome(done.returncode, done.stdout, done.stderr, json.loads(listed.stdout))


def start(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIME_LIMIT,
        check=False,
    )
