"""What the user's own program shows: the exception in the driver, for every way to die and every kind of function."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(1000)]

JOB = Path(__file__).parent / "jobs" / "matrix.py"

# What must be in the exception's text beside the place.
DEATHS = {
    "rdd:segv": [
        "died of SIGSEGV",
        "null-pointer",
        "string_at",
        "your code  matrix.py",
        "in die:  ctypes.string_at(0)",
    ],
    "rdd:ill": ["died of SIGILL", "isa-mismatch", "needs "],
    "rdd:kill": ["was killed by SIGKILL", "external-kill", "by the process itself", "in one"],
    "rdd:exit-0": ["ended with exit code 0", "worker-exit"],
    "rdd:exit-3": ["ended with exit code 3", "worker-exit"],
    "rdd:hang": ["hangs", "hang", "time.sleep(600)"],
    "rdd:memory": ["was killed by SIGKILL", "out-of-memory", "oom_kill"],
}
# The unit that each kind of function is told by.
KINDS = {
    "generated:segv": r"row 2 of stage \d+, partition 1",
    "row_udf:segv": r"of stage \d+, partition 1",
    "arrow_udf:segv": r"batch 0 \(rows 0 to 3\) of stage \d+, partition 1",
    "series_udf:segv": r"batch 0 \(rows 0 to 3\) of stage \d+, partition 1",
    "map_in_pandas:segv": r"batch 0 \(rows 0 to 3\) of stage \d+, partition 1",
    "map_in_arrow:segv": r"batch 0 \(rows 0 to 3\) of stage \d+, partition 1",
    "apply_in_pandas:segv": r"group \d of stage \d+, partition \d",
    "table_function:segv": r"of stage \d+, partition 1",
}
RAISED = "rdd:raise"


@pytest.fixture(scope="module")
def said(cluster, memory_group):
    """One driver goes through all of them: a JVM takes longer to start than a worker to die."""
    before = boxes(cluster.home)
    run = cluster.run(JOB, *DEATHS, RAISED, *KINDS)
    assert run.returncode == 0, run.stderr
    told = json.loads((cluster.place / "matrix.json").read_text())
    return {**told, "stderr": run.stderr, "boxes before": before}


def flat(text: str) -> str:
    """Panels fold their lines; sentences are looked for as they were."""
    return " ".join(text.split())


@pytest.mark.parametrize("case", DEATHS)
def test_the_exception_explains_the_death(said, memory_group, case):
    if case == "rdd:memory" and memory_group is None:
        pytest.skip("no memory group can be made here: root and a writable cgroup file system")
    text = said[case]["text"]
    assert said[case]["type"] == "Py4JJavaError"
    for words in DEATHS[case]:
        assert flat(words) in flat(text), text
    assert re.search(r"on row 2 of stage \d+, partition 1", flat(text)), text
    assert re.search(r"attempt 0, task \d+ · host 127\.0\.0\.[23] · executor \d", flat(text)), text
    assert "What to do" in text


@pytest.mark.parametrize("case", KINDS)
def test_every_kind_of_function_names_its_unit(said, case):
    text = flat(said[case]["text"])
    assert "died of SIGSEGV" in text and "null-pointer" in text, text
    assert re.search(KINDS[case], text), text
    assert "your code matrix.py" in text, text


def test_an_exception_keeps_its_type_and_gains_the_row(said):
    assert said[RAISED]["type"] == "PythonException"
    text = said[RAISED]["text"]
    assert "ValueError: this row is bad" in text
    assert re.search(
        r"lastwords: row 2 of stage \d+, partition 1 · attempt 0, task \d+ · host 127\.0\.0\.[23]", text
    ), text


def test_the_end_of_the_job_sums_up(said):
    """Exactly: the worker of the job that was cancelled has not died."""
    assert said["cancelled"] == ["Py4JJavaError"]
    deaths = len(DEATHS) + len(KINDS)
    assert f"lastwords: {deaths} Python workers died in this Spark job" in said["stderr"]


def test_the_event_log_has_each_explanation(said, cluster):
    """A sibling that is killed with its stage quotes the same text; it has not failed."""
    logs = [
        file.read_text(errors="replace") for file in (cluster.place / "events").rglob("*") if file.is_file()
    ]
    ends = [json.loads(line) for line in "".join(logs).splitlines() if "SparkListenerTaskEnd" in line]
    reasons = [end["Task End Reason"] for end in ends]
    told = [
        one
        for one in reasons
        if one["Reason"] == "ExceptionFailure" and "✗ Python worker" in one["Description"]
    ]
    assert len(told) == len(DEATHS) + len(KINDS)


def test_deaths_are_kept_on_the_host(said, cluster):
    kept = list((cluster.home / "deaths").iterdir())
    assert len(kept) >= len(DEATHS) + len(KINDS)


def test_no_boxes_are_left_behind(said, cluster):
    """The executors end a moment after their driver."""
    until = time.monotonic() + 60
    while boxes(cluster.home) - said["boxes before"] and time.monotonic() < until:
        time.sleep(0.1)
    assert not boxes(cluster.home) - said["boxes before"]


def boxes(home: Path) -> set[Path]:
    return set(home.glob("runs/*/*.box"))
