"""Runs one animal in one job under `lastwords run`, and brings back what was said."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zoo import native, places

ZOO = Path(__file__).parent
JOBS = ("plain", "pool", "dataloader")
LASTWORDS = (sys.executable, "-m", "lastwords")
TIME_LIMIT = 120
PROGRAMS = {"qemu-x86_64": "apt-get install qemu-user"}
MODULES = ("faiss", "torch")
LIBIOMP5 = Path(sys.prefix) / "lib" / "libiomp5.so"


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


def jobs(death: str) -> tuple[str, ...]:
    """Those in which this death makes sense; `own`: a job that lies beside it."""
    return tuple(expected(death).get("jobs", JOBS))


def missing(death: str) -> str | None:
    """What this machine lacks for that death, or None."""
    wanted = expected(death)
    lacks = [_lack(need) for need in wanted.get("needs", ())]
    if "place" in wanted:
        lacks.append(places.missing(wanted["place"]))
    return next((f"needs {lack}" for lack in lacks if lack), None)


def _lack(need: str) -> str | None:
    if need in ("cc", "c++"):
        return native.missing("zoonative" if need == "cc" else "zoothrows")
    if need == "x86_64" and platform.machine() != "x86_64":
        return f"x86-64, this is {platform.machine()}"
    if need == "unguarded-recursion" and sys.version_info >= (3, 12):
        return "Python 3.11 or older: later ones count recursion in C, whatever the limit is"
    if need in PROGRAMS and shutil.which(need) is None:
        return f"{need} ({PROGRAMS[need]})"
    if need == "libiomp5" and not LIBIOMP5.exists():
        return "Intel's OpenMP (pip install intel-openmp)"
    if need in MODULES and importlib.util.find_spec(need) is None:
        return f"the module {need}"
    if need == "cuda" and not _has_gpu():
        return "an NVIDIA GPU"
    return None


@cache
def _has_gpu() -> bool:
    """As the driver says it: torch takes seconds to say the same."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0)
    except OSError:
        return False


def command(death: str, job: str) -> list[str]:
    python = [*expected(death).get("through", ()), sys.executable]
    if job == "own":
        return [*python, str(ZOO / death / "job.py")]
    return [*python, str(ZOO / "jobs" / f"{job}.py"), str(ZOO / death / "death.py")]


def in_its_place(death: str, words: list[str]) -> list[str]:
    """The words that run these words where the animal lives."""
    place = expected(death).get("place")
    return [sys.executable, "-m", "zoo.places", place, *words] if place else words


def options(death: str) -> list[str]:
    """Of `lastwords run`."""
    return list(expected(death).get("options", ()))


# Of OpenMP: scikit-learn sets KMP_DUPLICATE_LIB_OK where it is imported, and two runtimes then live side by side.
NOT_TAKEN_ALONG = ("LASTWORDS", "KMP_")


def environment(home: Path | None = None) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(NOT_TAKEN_ALONG)}
    variables["PYTHONPATH"] = str(ZOO.parent)
    if home is not None:
        variables["LASTWORDS_HOME"] = str(home)
    return variables


def run_alone(death: str, job: str, home: Path | None = None) -> Outcome:
    """The job as its user runs it, without `lastwords run`. `home` is for jobs that use us themselves."""
    done = start(in_its_place(death, command(death, job)), environment(home))
    return Outcome(done.returncode, done.stdout, done.stderr, [])


def run(death: str, job: str, home: Path) -> Outcome:
    """The same job under `lastwords run`."""
    words = [*LASTWORDS, "run", *options(death), "--", *command(death, job)]
    done = start(in_its_place(death, words), environment(home))
    listed = start([*LASTWORDS, "list", "--json"], environment(home))
    return Outcome(done.returncode, done.stdout, done.stderr, json.loads(listed.stdout))


def start(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a group of its own, so that nothing of a job that hangs outlives it. Raises TimeoutExpired."""
    running = subprocess.Popen(
        words,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = running.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        raise
    return subprocess.CompletedProcess(words, running.returncode, out, err)
