"""The job that is tried: it really runs, is measured, ends in its own way, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from lastwords.commands.doctor import _causes
from lastwords.prevent import needs, sampling, trial
from lastwords.prevent.trial import Dose, JobRefused
from tests.watch.running import LASTWORDS, clean_environment, python

PATIENCE = 60


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.delenv("LASTWORDS", raising=False)
    return place


def tried(words, **dose):
    with trial.tried(words, Dose(**dose)) as (found, home):
        assert Path(home).is_dir()
    assert not Path(home).exists()
    return found


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


ITEMS = """
import itertools, os, sys, time, lastwords
try:
    for number in itertools.count():
        with lastwords.item(number):
            time.sleep(0.001)
finally:
    with open(sys.argv[1], "w") as file:
        file.write(f"closed properly {os.environ['LASTWORDS_DOCTOR']} {sys.stdin.read()!r}")
"""


STANDS_STILL = """
import sys, threading, lastwords
with lastwords.item(0):
    pass
print("RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_1>: No space left on device (28)")
sys.stdout.flush()
threading.Event().wait()
"""


def test_of_a_job_that_stands_still_its_last_lines_are_kept():
    """As torch's loader does when the thread that sends a batch could not get shared memory for it."""
    found = tried(python(STANDS_STILL), batches=50, seconds=5.0)
    assert (found.ended, found.items, found.is_failure) == ("too slow", 1, False)
    assert 0 < found.stood_still < found.seconds
    (cause,) = _causes(os.devnull, found.said)
    assert cause.id == "shared-memory-full"


def test_a_job_ends_in_its_own_way_after_enough_items(tmp_path, temporary):
    found = tried(python(ITEMS, str(tmp_path / "result")), batches=50)
    assert found.ended == "stopped"
    assert not found.is_failure
    assert found.items >= 50
    assert (tmp_path / "result").read_text() == "closed properly 1 ''"
    assert found.main is not None
    assert found.main.peak_bytes > 1 << 20
    assert list(temporary.iterdir()) == []


def test_a_job_that_does_nothing_to_count_is_stopped_by_the_clock():
    found = tried(python("import time; time.sleep(1000)"), seconds=1.0)
    assert (found.ended, found.items) == ("too slow", 0)


def test_a_job_that_fails_shows_its_last_words():
    found = tried(python("print('loading'); raise SystemExit('no such data set')"))
    assert (found.ended, found.is_failure) == ("exit code 1", True)
    assert found.said == ("loading", "no such data set")


def test_a_job_that_dies_is_a_death():
    found = tried(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (found.ended, found.deaths) == ("signal 11", 1)


def test_a_job_that_ends_well_by_itself():
    assert tried(python("pass")).ended == "exit code 0"


def test_a_job_that_will_not_hear_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(trial, "POLITE_SECONDS", {signal.SIGINT: 0.5, signal.SIGTERM: 0.5})
    deaf = """
    import os, signal, sys, time, lastwords
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(sys.argv[1], "w").write(str(os.getpid()))
    while True:
        with lastwords.item(1):
            time.sleep(0.001)
    """
    tried(python(deaf, str(tmp_path / "pid")), batches=5)
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_what_a_job_leaves_running_is_ended(tmp_path):
    leaves = """
    import subprocess, sys
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    open(sys.argv[1], "w").write(str(process.pid))
    """
    found = tried(python(leaves, str(tmp_path / "pid")))
    assert found.left_running == 1
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_other_children_of_ours_are_left_alone():
    mine = subprocess.Popen(["sleep", "1000"])
    try:
        assert tried(python("pass")).left_running == 0
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


@pytest.mark.parametrize("words", [["no-such-program"], ["/"], [""]])
def test_a_command_that_cannot_start(words):
    with pytest.raises(JobRefused):
        tried(words)


def test_a_python_without_us():
    found = tried([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], seconds=1.0)
    assert found.main is None


def test_a_pool_is_measured(tmp_path, monkeypatch):
    """Half of an item is work and half is waiting. The pool would do all its tasks before it ends: it is not let."""
    monkeypatch.setattr(trial, "POLITE_SECONDS", {signal.SIGINT: 0.5, signal.SIGTERM: 10.0})
    job = tmp_path / "job.py"
    job.write_text(
        textwrap.dedent("""
        import concurrent.futures, time
        def work(number):
            until = time.thread_time() + 0.004
            while time.thread_time() < until:
                pass
            time.sleep(0.004)
        if __name__ == "__main__":
            with concurrent.futures.ProcessPoolExecutor(2) as pool:
                for _ in pool.map(work, range(100000)):
                    pass
        """)
    )
    found = tried([sys.executable, str(job)], batches=200)
    assert len(found.workers) == 2
    for worker in found.workers:
        assert worker.private_bytes > 1 << 20
        assert 3e6 < worker.cpu_ns_per_item < 8e6
        # On a machine that is busy with other things much of it is spent in the queue for a CPU.
        assert worker.wait_ns_per_item + worker.queue_ns_per_item > 3e6
        assert worker.item_ns > 8e6
    job_needs = needs.of_trial(found)
    assert (job_needs.source, job_needs.workers) == ("measured", 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_us_ends_the_job(tmp_path, number):
    """SIGKILL leaves our directory behind; the job it does not."""
    endless = """
    import os, sys, time
    print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
    open(sys.argv[2], "w").close()
    time.sleep(1000)
    """
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    job = python(endless, str(tmp_path / "pid"), str(ready))
    doctor = subprocess.Popen(
        [*LASTWORDS, "--home", str(tmp_path / "home"), "doctor", "--quick", "--", *job],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(TMPDIR=str(tmp_path)),
    )
    with open(ready):  # until the job has opened it, too
        pass
    pid = int((tmp_path / "pid").read_text())
    watched = os.pidfd_open(pid)
    doctor.send_signal(number)
    assert doctor.wait(PATIENCE) != 0
    assert select.select([watched], [], [], PATIENCE)[0], "the job goes on"
    os.close(watched)
    if number != signal.SIGKILL:
        assert not list(tmp_path.glob("lastwords-doctor-*"))


@pytest.mark.heavy
@pytest.mark.slow
def test_a_loader_s_batches_are_measured(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        textwrap.dedent("""
        import threading, torch
        from torch.utils.data import DataLoader, Dataset
        class Pictures(Dataset):
            def __len__(self):
                return 100000
            def __getitem__(self, index):
                return torch.zeros(3, 64, 64), index, torch.zeros(1)
        if __name__ == "__main__":
            threading.Thread(target=threading.Event().wait, name="heart", daemon=True).start()
            for _ in DataLoader(Pictures(), batch_size=8, num_workers=2, prefetch_factor=3):
                pass
        """)
    )
    found = tried([sys.executable, str(job)], batches=24)
    assert found.ended == "stopped"
    assert (found.loader.num_workers, found.loader.prefetch_factor, found.loader.batch_size) == (2, 3, 8)
    assert found.batch_tensors == 3
    page = 4096
    assert 8 * 3 * 64 * 64 * 4 <= found.batch_bytes <= 8 * 3 * 64 * 64 * 4 + 3 * page
    assert found.fork.parent_threads >= 1
    assert found.shared_memory_peak >= found.batch_bytes
    assert any("libgomp" in name for name in found.runtimes)
    job_needs = needs.of_trial(found)
    assert (job_needs.workers, job_needs.prefetch, job_needs.batch_tensors) == (2, 3, 3)


FORKS_AT_ONCE = """
import os, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(child, flush=True)
os.waitpid(child, 0)
"""


def test_a_thread_started_just_before_the_fork_counts_and_one_started_just_after_does_not():
    """All three are born within one tick of the kernel's clock, most times."""
    for _ in range(20):
        parent = subprocess.Popen([sys.executable, "-c", FORKS_AT_ONCE], stdin=-1, stdout=-1)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        identity = {"parent": parent.pid, "start_ticks": sampling._start_ticks(child, child)}
        watched = [sampling.Watched(child, "", {"identity": identity}), sampling.Watched(parent.pid, "")]
        found = sampling._fork(watched[0], watched)
        parent.communicate(timeout=PATIENCE)
        assert found is not None and found.parent_threads == 1
