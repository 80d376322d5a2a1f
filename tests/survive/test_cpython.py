"""The tests that CPython has for its own process pools, run against ours, by the interpreter that runs this."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.survive import cpython_pools


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cpythons_own_tests_pass():
    """Under fork. `python -m tests.survive.cpython_pools` runs them under spawn and forkserver, too: the same, slower."""
    words = [sys.executable, "-m", "tests.survive.cpython_pools", "ProcessPoolFork(?!server)"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=580, check=False)
    if done.returncode == cpython_pools.NO_TESTS:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    ran = re.search(r"(\d+) ran, ", done.stdout)
    assert ran is not None and int(ran[1]) >= 30


def test_each_test_that_is_left_out_has_its_reason_in_the_docs():
    page = (cpython_pools.ROOT / "docs" / "executor.md").read_text()
    missing = [name for name in cpython_pools.NOT_OURS if name.rpartition(".")[2] not in page]
    assert missing == []
