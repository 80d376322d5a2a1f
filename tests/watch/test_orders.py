"""Who told the job to stop: signals that `lastwords run` was sent, told with their senders, also after its own end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence, Status
from lastwords.evidence.ordered import with_orders
from lastwords.evidence.store import Store
from lastwords.evidence.unwatched import take_up
from lastwords.watch import orders
from lastwords.watch.orders import FILE, Order, Orders
from lastwords.watch.signals import Incoming
from tests.watch.running import PATIENCE, python, run_words, start
from tests.watch.test_hangs import wait_for

WORKS = """
    import os, signal
    import lastwords
    with lastwords.item("shard-17/00042", index=42):
        print(os.getpid(), flush=True)
        while True:
            signal.pause()
"""
GOES_ON = WORKS.replace(
    "import lastwords\n",
    "import lastwords\n    signal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n",
)
SLURM = {"SLURM_JOB_ID": "4711"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def begun(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_kill_by_a_stranger_is_told_with_his_name(home: Path) -> None:
    with start(home, python(WORKS)) as process:
        begun(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGTERM
    (found,) = Store(home).all()
    (mention,) = found.mentions or ()
    own = Path("/proc/self/comm").read_text().strip()
    assert mention.kind == "stop-request"
    assert mention.fields["by"] == f"{own}, pid {os.getpid()}"
    best = diagnose(found).best
    assert best is not None and best.id == "external-kill"
    assert f"pid {os.getpid()}" in best.sentence


def test_one_that_is_killed_together_with_its_watcher(home: Path) -> None:
    """As at the end of a time of grace. What it had been told lies in the run's directory."""
    with start(home, python(GOES_ON)) as process:
        pid = begun(process)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None and process.stdout.readline() == "heard\n"
        wait_for(lambda: [*home.rglob(FILE)], bool)  # the job comes first
        process.kill()
        process.wait(PATIENCE)
        os.kill(pid, signal.SIGKILL)
        process.stdout.read()
    wait_for(lambda: take_up(home), bool)  # its output ends a moment before it does
    (found,) = Store(home).all()
    (mention,) = found.mentions or ()
    assert (mention.kind, mention.fields["signal"]) == ("stop-request", "SIGTERM")
    assert found.item is not None and found.item.index == 42
    assert any("killed together" in one.how_to_collect for one in found.missing)


@pytest.mark.root
def test_a_pod_that_is_told_from_outside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a PID namespace of its own, as its first process: whoever sends the signal has no number in there."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare(1)")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    words = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child", *run_words(home, python(WORKS))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        begun(process)
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    (found,) = Store(home).all()
    best = diagnose(found).best
    assert best is not None and best.id == "preemption", said
    assert best.facts["by"] == "Kubernetes"
    assert process.returncode == 128 + signal.SIGTERM, "the first process of a namespace cannot die of it"


def order(name: str | None = "slurmstepd", **changes: object) -> Order:
    found = Order(signal.SIGTERM, 312, name, 1000.0, SLURM)
    return replace(found, **changes)  # type: ignore[arg-type]


def killed(*heard: Order, signal: str | None = "SIGTERM") -> Evidence:
    status = Status(source="parent", signal=signal) if signal else None
    return with_orders(Evidence(time=1002.0, status=status, events=(), sent_signals=()), heard)


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (killed(order()), "preemption"),
        (killed(order(), signal="SIGKILL"), "preemption"),
        (killed(order(), signal=None), "preemption"),
        (
            killed(order(name=None, sender=0, orchestrator={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})),
            "preemption",
        ),
        (killed(order(orchestrator={**SLURM, "SLURM_JOB_END_TIME": "1010"})), "time-limit"),
        (killed(order(orchestrator={**SLURM, "SLURM_JOB_END_TIME": "9000"})), "preemption"),
        (killed(order(name="bash")), "external-kill"),
        (killed(order(name=None, sender=0)), "external-kill"),
        (killed(), "external-kill"),
    ],
    ids=[
        "Slurm",
        "after the time of grace",
        "nobody saw it end",
        "from outside of a pod",
        "its time was over",
        "it had time left",
        "a shell",
        "from outside of a container",
        "nobody said a word",
    ],
)
def test_by_whom_decides(evidence: Evidence, cause: str) -> None:
    best = diagnose(evidence).best
    assert best is not None and best.id == cause, best


def test_a_crash_after_the_order_is_a_crash() -> None:
    verdicts = {one.id: one.confidence for one in diagnose(killed(order(), signal="SIGSEGV")).verdicts}
    assert verdicts["preemption"] < 0.5


def test_a_warning_before_makes_it_surer() -> None:
    def sure(evidence: Evidence) -> float:
        return next(one.confidence for one in diagnose(evidence).verdicts if one.id == "preemption")

    warned = killed(order(signal=signal.SIGUSR1, time=940.0), order())
    assert sure(warned) > sure(killed(order()))
    assert "SIGUSR1 and then SIGTERM from slurmstepd, pid 312" in (warned.mentions or ())[0].quote


def test_what_is_written_is_read(tmp_path: Path) -> None:
    heard = Orders(str(tmp_path))
    begun = time.time()
    heard.hear(Incoming(signal.SIGTERM, 0, os.getpid()))
    heard.hear(Incoming(signal.SIGWINCH, 0, os.getpid()))
    (found,) = heard.so_far()
    assert orders.read(str(tmp_path)) == (found,)
    assert (found.signal, found.sender) == (signal.SIGTERM, os.getpid()) and found.time >= begun


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"signal": "x"}',
        '{"signal": 15, "sender": 1, "name": 7, "time": 1, "orchestrator": 3}',
        "\0",
    ],
)
def test_a_file_that_says_anything(tmp_path: Path, text: str) -> None:
    (tmp_path / orders.FILE).write_text(f"{text}\n" * 200)
    assert orders.read(str(tmp_path)) == ()


def test_no_more_than_so_many_are_kept(tmp_path: Path) -> None:
    heard = Orders(str(tmp_path))
    for _ in range(2 * orders.MOST):
        heard.hear(Incoming(signal.SIGTERM, 0, os.getpid()))
    assert len(heard.so_far()) == len(orders.read(str(tmp_path))) == orders.MOST
