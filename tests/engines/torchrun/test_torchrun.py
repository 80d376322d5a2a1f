"""torchrun on two ranks, one of which ends: what the agent prints, and who it says was first."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.victims import deaths

pytest.importorskip("torch")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(700)]

HERE = Path(__file__).parent
PYTHON = Path(sys.executable)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(
    home: Path, *words: str, options: tuple[str, ...] = ("--nproc-per-node=2",), place: tuple[str, ...] = ()
):
    """The job as a user starts it, with `lastwords run --` before it."""
    ours = [str(PYTHON.with_name("lastwords")), "run", "--quiet", "--"]
    launch = [str(PYTHON.with_name("torchrun")), *options, f"--master-port={free_port()}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LASTWORDS")}
    return subprocess.run(
        [*place, *ours, *launch, str(HERE / "train.py"), *words],
        env={**variables, "LASTWORDS_HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd=deaths.ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def parts(stderr: str) -> tuple[str, str]:
    """The root cause, and the other failures, as the agent prints them."""
    _, _, message = stderr.partition("FAILED\n")
    others, found, root = message.partition("Root Cause (first observed failure):")
    assert found, stderr
    return root, others


EXPECTED = {
    **{how: deaths.ENDINGS[how] for how in ("SIGILL", "SIGKILL", "exit 3")},
    "exception": ("died of ValueError", "python-exception", "a value that nobody expected"),
}


def test_the_first_rank_to_fail_is_told_from_those_torn_down_with_it(tmp_path):
    if lacks := deaths.missing("SIGSEGV"):
        pytest.skip(lacks)
    done = torchrun(tmp_path, "SIGSEGV")
    root, others = parts(done.stderr)
    assert done.returncode == 1
    assert f"✗ rank 1 (pid {pid_of(root)}) died of SIGSEGV on batch 3" in root, done.stderr
    assert "null-pointer" in root and "sum_values" in root and "What to do" in root
    assert f"rank 1 of 2 (local rank 1) on {os.uname().nodename}" in root
    # The other rank lost its connection, or was stopped before it noticed: it says so, and nothing else.
    assert re.search(r"rank 0 failed because rank 1 \(pid \d+\) was gone|because rank 1 had failed", others)
    assert "✗" not in others


def test_each_attempt_is_explained_though_torchrun_starts_again(tmp_path):
    """One agent, one rank that dies of something else each time: three attempts are hidden, the fourth is printed."""
    hows = [how for how in EXPECTED if not deaths.missing(how)]
    done = torchrun(
        tmp_path, ",".join(hows), "alone", options=("--nproc-per-node=1", f"--max-restarts={len(hows) - 1}")
    )
    root, _ = parts(done.stderr)
    before, _, _ = done.stderr.partition("FAILED\n")
    _, *hidden = before.split("torchrun starts the ranks again; why rank 0 failed:")
    for attempt, (how, said) in enumerate(zip(hows, [*hidden, root], strict=True)):
        headline, *proofs = EXPECTED[how]
        assert f"{headline} on batch 3" in said, said
        assert all(proof in " ".join(said.split()) for proof in proofs), said
        assert f"on {os.uname().nodename}" in said
        assert (f"attempt {attempt + 1}" in said) == (attempt > 0)


def pid_of(failure: str) -> str:
    found = re.search(r"exitcode\s+: \S+ \(pid: (\d+)\)", failure)
    assert found, failure
    return found[1]


def test_memory_of_the_container(tmp_path):
    from zoo import places

    if lacks := places.missing("small-memory"):
        pytest.skip(f"needs {lacks}")
    inside = (sys.executable, "-m", "zoo.places", "small-memory")
    root, _ = parts(
        torchrun(tmp_path, "memory", "alone", options=("--nproc-per-node=1",), place=inside).stderr
    )
    assert "was killed by SIGKILL on batch 3" in root
    assert "out-of-memory" in root and "oom" in root


def test_a_rank_that_does_not_come_is_found(tmp_path):
    """Rank 0 complains; rank 1 is the one that stopped, and the agent says where."""
    done = torchrun(tmp_path, "hang")
    root, others = parts(done.stderr)
    assert "rank 0 waited for rank 1" in root and "which lives and did not come" in root
    assert "rank 1" in root and "hangs on batch 3" in root
    assert '"hang": lambda: time.sleep(1000)' in root
    assert "torchrun stopped it, because rank 0 had failed" in others


def test_exit_code_0_is_reported_though_torchrun_calls_it_success(tmp_path):
    done = torchrun(tmp_path, "exit 0", "alone")
    assert done.returncode == 0
    assert "torchrun counts rank 1 as done, but it left in the middle" in done.stderr
    assert "ended with exit code 0 on batch 3" in done.stderr and "worker-exit" in done.stderr


def test_exit_code_0_is_named_by_the_rank_that_fails_of_it(tmp_path):
    root, _ = parts(torchrun(tmp_path, "exit 0").stderr)
    assert re.search(r"rank 0 failed because rank 1 \(pid \d+\) was gone: it left with exit code 0", root)
    assert "ended with exit code 0 on batch 3" in root


def test_what_a_rank_wrote_itself_stays(tmp_path):
    """`@record` writes an error file: we add to what is printed, and leave the file alone."""
    logs = tmp_path / "logs"
    done = subprocess.run(
        [PYTHON.with_name("lastwords"), "run", "--quiet", "--", PYTHON.with_name("torchrun"), f"--log-dir={logs}",
         "--nproc-per-node=1", f"--master-port={free_port()}", HERE / "recorded.py"],
        env={**os.environ, "LASTWORDS_HOME": str(tmp_path / "home")},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    root, _ = parts(done.stderr)
    (file,) = logs.rglob("error.json")
    written = json.loads(file.read_text())["message"]["extraInfo"]["py_callstack"]
    assert "raise ValueError" in written and "lastwords" not in written and "✗" not in written
    assert written.strip().splitlines()[-1] in root
    assert "✗ rank 0" in root and "python-exception" in root


def test_a_rank_without_lastwords_gets_a_hint(tmp_path):
    """The agent is recorded, its ranks are not, as in another environment."""
    done = subprocess.run(
        [PYTHON.with_name("lastwords"), "run", "--quiet", "--", PYTHON.with_name("torchrun"), "--no-python",
         "--nproc-per-node=1", f"--master-port={free_port()}",
         "env", "-u", "LASTWORDS", PYTHON, "-c", "import os; os.kill(os.getpid(), 11)"],
        env={**os.environ, "LASTWORDS_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    root, _ = parts(done.stderr)
    assert "rank 0" in root and "died of SIGSEGV" in root
    assert "this rank was not recorded" in root and "pip install lastwords" in root


def test_spawn_carries_the_explanation_in_a_note(tmp_path):
    done = subprocess.run(
        [PYTHON.with_name("lastwords"), "run", "--quiet", "--", PYTHON, HERE / "spawned.py"],
        env={**os.environ, "LASTWORDS_HOME": str(tmp_path), "PYTHONPATH": str(deaths.ROOT)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    said = json.loads(done.stdout.splitlines()[-1])
    assert (
        said["type"] == "ProcessExitedException"
        and said["message"] == "process 1 terminated with signal SIGSEGV"
    )
    (note,) = said["notes"]
    assert (
        "process 1 of torch.multiprocessing.spawn" in note
        and "died of SIGSEGV" in note
        and "null-pointer" in note
    )
