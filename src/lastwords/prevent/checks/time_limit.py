"""How long the job may run: a batch system's limit, CPU time, or a `timeout` around us."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.watch.proc import parent_of, read_text

SHORT_SECONDS = 3600.0
_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Limit:
    what: str
    seconds: float
    """That are left, or that there are in all where nobody knows when they began."""
    source: str


def measure(patient: Patient) -> tuple[Limit, ...]:
    del patient
    return tuple(filter(None, (_slurm(os.environ), _cpu_time(), _timeout())))


def _slurm(environment: Mapping[str, str]) -> Limit | None:
    end = environment.get("SLURM_JOB_END_TIME", "")
    if end.isdecimal():
        return Limit("Slurm ends the job", int(end) - time.time(), "SLURM_JOB_END_TIME")
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdecimal() or shutil.which("squeue") is None:
        return None
    try:
        words = ["squeue", "-h", "-j", job, "-o", "%L"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    left = time_left(said.strip())
    return Limit("Slurm ends the job", left, "squeue") if left is not None else None


def time_left(text: str) -> float | None:
    """As squeue writes it: `1-02:03:04`, `02:03:04` or `03:04`."""
    found = _LEFT.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _cpu_time() -> Limit | None:
    soft = resource.getrlimit(resource.RLIMIT_CPU)[0]
    if soft == resource.RLIM_INFINITY:
        return None
    return Limit("a process is ended (SIGXCPU) by its CPU time", float(soft), "getrlimit; ulimit -t")


def _timeout() -> Limit | None:
    """A `timeout(1)` among our ancestors."""
    pid = os.getpid()
    for _ in range(DEEPEST):
        parent = parent_of(pid)
        if not parent:
            return None
        seconds = of_timeout(read_text(f"/proc/{parent}/cmdline").split("\0"))
        if seconds:
            return Limit(
                "a `timeout` around this shell ends all in it", seconds, f"command line of pid {parent}"
            )
        pid = parent
    return None


def of_timeout(words: list[str]) -> float | None:
    if os.path.basename(words[0]) != "timeout":
        return None
    rest = iter(words[1:])
    for word in rest:
        if word in ("-k", "-s", "--kill-after", "--signal"):
            next(rest, None)
        elif not word.startswith("-"):
            found = _DURATION.fullmatch(word)
            return float(found[1]) * _UNITS[found[2]] if found else None
    return None


def judge(found: tuple[Limit, ...], job: Job) -> Iterator[Finding]:
    del job
    if not found:
        yield fine("no time limit around this process", "Slurm, RLIMIT_CPU, timeout(1)")
    for limit in found:
        yield Finding(
            severity="kills" if limit.seconds <= 0 else "risk" if limit.seconds < SHORT_SECONDS else "note",
            says=f"{limit.what} after {_words(limit.seconds)}",
            measured=(limit.source,),
            fixes=(Fix("write checkpoints more often than that, and handle SIGTERM"),),
            facts={"seconds": limit.seconds},
        )


def _words(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


CHECK = Check("time-limit", "time limits", measure, judge)
