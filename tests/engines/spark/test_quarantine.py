"""Rows that kill go to a side table, and all others come through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(1000)]

JOB = Path(__file__).parent / "jobs" / "quarantine.py"
BAD = (37, 38, 180)


@pytest.fixture(scope="module")
def said(cluster):
    run = cluster.run(JOB)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_every_other_row_comes_through_once(said):
    assert said["good"] == [[row, 2 * row] for row in range(200) if row not in BAD]


def test_the_side_table_has_the_rows_and_why(said):
    bad = {int(row): why for row, why in said["bad"].items()}
    assert tuple(bad) == BAD
    assert (bad[37]["how"], bad[37]["cause"]) == ("died of SIGSEGV", "null-pointer")
    assert (bad[38]["how"], bad[38]["cause"]) == ("ended with exit code 3", "worker-exit")
    assert (bad[180]["how"], bad[180]["cause"]) == ("took longer than 2 s", "hang")
    assert "ctypes.string_at(0)" in bad[37]["explanation"]
    assert {why["partition"] for why in bad.values()} == {0, 1}


def test_no_task_failed_for_it(said):
    assert said["deaths"] == 0


def test_a_function_that_kills_always_is_no_matter_of_rows(said):
    assert "more than 3 rows of one partition killed the function" in said["refused"]
    assert "worker-exit" in said["refused"]
