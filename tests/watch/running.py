"""Starting `lastwords run` as a user would, and talking to what runs in it without any sleep."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LASTWORDS = [sys.executable, "-m", "lastwords"]
PATIENCE = 60


def run_words(home: Path, words: Sequence[str], *options: str) -> list[str]:
    return [*LASTWORDS, "--home", str(home), "run", *options, "--", *words]


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(program), *arguments]


# The watcher loads while the job begins, and its sampler has no hour: whoever wants to be seen waits for that. A process
# that is sampled has its statm open over there; and each look of the sampler ends with its going to sleep. It may do so
# once before it hears of us, and once more at a lock.
SAMPLED = """
import os, time

def looked_at(watcher=os.getppid(), times=3):
    \"\"\"Returns when the watcher has looked at the memory of this process, and that later than the call.\"\"\"
    while not _is_sampled(watcher) or (before := _sleeps(watcher)) is None:
        time.sleep(0.001)
    while _sleeps(watcher) < before + times:
        time.sleep(0.001)

def _is_sampled(watcher):
    own = f"/proc/{os.getpid()}/statm"
    for name in os.listdir(f"/proc/{watcher}/fd"):
        try:
            if os.readlink(f"/proc/{watcher}/fd/{name}") == own:
                return True
        except OSError:  # one was closed meanwhile
            continue
    return False

def _sleeps(watcher):
    for task in os.listdir(f"/proc/{watcher}/task"):
        try:
            with open(f"/proc/{watcher}/task/{task}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
        except OSError:  # a thread has ended meanwhile
            continue
        # It names itself when it runs for the first time.
        if lines["Name"].strip() == "lastwords-sampl":
            return int(lines["voluntary_ctxt_switches"])
"""


def sampled(program: str, *arguments: str) -> list[str]:
    """A program that may call `looked_at`."""
    return python(SAMPLED + textwrap.dedent(program), *arguments)


def clean_environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LASTWORDS")}
    return {**kept, **variables}


def run(home: Path, words: Sequence[str], *options: str, **popen: Any) -> subprocess.CompletedProcess[str]:
    popen.setdefault("env", clean_environment())
    popen.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        run_words(home, words, *options),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **popen,
    )


def start(home: Path, words: Sequence[str], **popen: Any) -> subprocess.Popen[str]:
    """With pipes for all three streams; `ready(process)` waits for its first line."""
    return subprocess.Popen(
        run_words(home, words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        **popen,
    )


def leftovers(home: Path) -> list[Path]:
    """What a run left in its place; a tidy one leaves nothing."""
    return sorted((home / "runs").glob("*/*"))


def deaths(home: Path) -> list[Path]:
    return sorted((home / "deaths").glob("*")) if (home / "deaths").exists() else []


STARTS = 100
"""Plain Pythons, one after another, that could start meanwhile: two seconds' worth on a machine that is not busy."""


def soon(seconds: float) -> float:
    """This many seconds; on a machine that is slow, or busy with others, as long as a hundred starts of Python take now."""
    return max(seconds, STARTS * max(_start() for _ in range(3)))


def _start() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], env=clean_environment(), check=True)
    return time.monotonic() - begun
