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
