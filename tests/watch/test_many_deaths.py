"""Many processes die in many ways, and each has another waiter that races with the watcher for its status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench._mortals import WAITERS, WAYS
from bench.watch import ROOT, Account, account
from tests.watch.running import clean_environment, leftovers, run_words

PATIENCE = 110


def die(home: Path, ledger: Path, count: int, **variables: str) -> Account:
    ledger.touch()
    words = [sys.executable, "-m", "bench._mortals", str(ledger), str(count)]
    done = subprocess.run(
        run_words(home, words, "--quiet"),
        cwd=ROOT,
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done, 0 failed\n"), done.stderr
    assert f"lastwords: {count} deaths in this job" in done.stderr
    return account(home, ledger)


@pytest.mark.slow
def test_every_death_is_told_and_no_status_is_stolen(tmp_path: Path) -> None:
    told = die(tmp_path / "home", tmp_path / "ledger", count=2 * len(WAITERS) * len(WAYS))
    assert told.faults == []
    assert told.right == told.total
    assert told.sources["parent"] > 0, "orphans are reaped by us"
    assert leftovers(tmp_path / "home") == []
