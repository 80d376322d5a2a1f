"""`lastwords run --loader`: an unchanged job on torch's own DataLoader survives its workers' deaths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

JOB = """
import os
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index == 5 and not os.path.exists("died"):
            open("died", "w").close()
            os.abort()
        return index * index

print(type(DataLoader).__module__, sum(int(batch.sum()) for batch in DataLoader(Squares(), 4, num_workers=2)))
"""


def test_an_unchanged_job_survives(tmp_path: Path):
    (tmp_path / "job.py").write_text(JOB)
    words = [sys.executable, "-m", "lastwords", "run", "--loader", "--", sys.executable, "job.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert str(sum(index * index for index in range(32))) in done.stdout
    assert "SIGABRT" in done.stderr and "item 5" in done.stderr  # survived, and explained all the same
