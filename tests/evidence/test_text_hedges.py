"""What a log guesses, plans or prints as a setting is not what happened."""

from __future__ import annotations

import pytest

from lastwords.evidence.text import from_text
from lastwords.evidence.text.hedges import certain, is_setting


def kinds(log: str) -> set[str]:
    return {one.kind for one in from_text(log).mentions or ()}


@pytest.mark.parametrize(
    "line",
    [
        "Some common causes include: (1) the OOM killer killed it, (2) SIGSEGV, (3) the node was preempted.",
        "This can happen when the node was preempted or ran out of memory.",
        "Either the leader task was preempted or the network failed.",
        "It was probably killed by the OOM killer.",
    ],
)
def test_a_guess_is_no_statement(line: str):
    assert not kinds(line) & {"oom-kill", "memory-limit", "preempted", "signal"}


def test_a_list_may_begin_on_the_line_above():
    log = "The worker is gone. Possible reasons:\n(1) preempted by the batch system\n(2) OOM killed\n"
    assert not kinds(log) & {"oom-kill", "preempted"}
    assert "preempted" in kinds("The worker is gone.\njob was preempted\n")


def test_what_is_certain_beside_a_guess_is_kept():
    line = (
        "The process exited with exit code 137 (SIGKILL: Killed). This may have been caused by an OOM error."
    )
    assert certain(line) == "The process exited with exit code 137 (SIGKILL: Killed)."
    status = from_text(line).status
    assert status is not None
    assert status.signal == "SIGKILL"
    assert "memory-guess" in kinds(line)


def test_slurm_is_sure_of_what_it_words_as_a_guess():
    line = "Some of your processes may have been killed by the cgroup out-of-memory handler."
    assert "oom-kill" in kinds(line)


@pytest.mark.parametrize(
    "line",
    [
        'config: {"on_death": "OOMKilled", "signal": "SIGKILL", "limit": {"reason": "ran out of memory"}}',
        "args = Namespace(action='SIGKILL', note='worker ran out of memory', retries=3)",
    ],
)
def test_a_setting_is_no_statement(line: str):
    assert not kinds(line) & {"oom-kill", "memory-limit", "signal"}


def test_behind_the_brackets_of_a_setting_the_log_goes_on():
    line = 'args=["train.py"] state={"OOMKilled": true}'
    assert not is_setting(line, line.index("OOMKilled"))
    assert "oom-kill" in kinds('{"args": ["train.py"], "state": {"reason": "OOMKilled"}}')


def test_imports_in_another_order_tell_a_conflict():
    crash = "$ python -c 'import alpha, beta'\nSegmentation fault (core dumped)\n"
    fine = "$ python -c 'import beta, alpha'\n$ echo $?\n0\n"
    assert "import-order" in kinds(crash + fine)
    assert "import-order" not in kinds(crash)
    assert "import-order" not in kinds(crash + "$ python -c 'import gamma, alpha'\n")


def test_a_worker_booted_later_stands_for_one_that_is_gone():
    at_once = "".join(
        f"[2031-01-01 10:00:0{n} +0000] [{n}] [INFO] Booting worker with pid: {n}\n" for n in range(4)
    )
    assert "lost" not in kinds(at_once)
    assert "lost" in kinds(at_once + "[2031-01-01 10:07:31 +0000] [9] [INFO] Booting worker with pid: 9\n")
