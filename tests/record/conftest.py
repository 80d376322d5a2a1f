"""Running a small program as a recorded process, and reading what it left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lastwords import _native


@dataclass(frozen=True)
class Recorded:
    returncode: int
    stdout: str
    stderr: str
    directory: Path

    def boxes(self) -> list[dict[str, Any]]:
        """The records of all its processes, in the order of their birth."""
        records = [json.loads(_native.read_box(path)) for path in self.directory.glob("*.box")]
        return sorted(records, key=lambda record: record["identity"]["born_monotonic_ns"])

    def crashed(self) -> dict[str, Any]:
        """The record of the one process that crashed."""
        (record,) = [record for record in self.boxes() if record["crash"]]
        return record

    def autopsy(self) -> dict[str, Any]:
        reports = [json.loads(_native.autopsy_box(path)) for path in self.directory.glob("*.box")]
        (report,) = [report for report in reports if report]
        return dict(report)


Record = Callable[..., Recorded]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """`record(program, *arguments, **variables)` runs Python code with a black box in every process."""

    def run(program: str, *arguments: str, **variables: str) -> Recorded:
        directory = tmp_path / "run"
        directory.mkdir(exist_ok=True)
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        root = str(Path(__file__).parents[2])
        done = subprocess.run(
            [sys.executable, str(script), *arguments],
            env={**os.environ, "LASTWORDS": str(directory), "PYTHONPATH": root, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=110,  # torch alone has taken a minute to import, beside other work
            check=False,
        )
        return Recorded(done.returncode, done.stdout, done.stderr, directory)

    return run
