"""We live in other people's processes: whatever goes wrong on our side, the job runs on as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = "print('the job ran'); raise SystemExit(7)"


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def as_without_us(done: subprocess.CompletedProcess[str]) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (7, "the job ran\n", "")


def test_a_run_directory_that_is_gone():
    assert as_without_us(run(JOB, LASTWORDS="/nowhere/at/all"))


def test_a_run_directory_that_cannot_be_written(tmp_path):
    not_a_directory = tmp_path / "file"
    not_a_directory.write_text("")
    assert as_without_us(run(JOB, LASTWORDS=str(not_a_directory)))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tiny file system needs root")
def test_a_full_disk(tmp_path):
    """A store into a hole of a mapped file on a full disk is a SIGBUS. The job must not meet it."""
    mount = tmp_path / "full"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], check=True)
    try:
        job = "import os\nfor _ in range(3):\n os.fork() or os._exit(0)\n" + JOB
        assert as_without_us(run(job, LASTWORDS=str(mount)))
        assert list(mount.glob("*.box")) == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_package_that_is_gone(tmp_path):
    """What the .pth line imports outlives a package that was deleted by hand: one clear line for the whole job."""
    bootstrap = next(Path(__file__).parents[2].glob("lastwords.data/purelib/*.py"))
    (tmp_path / "lastwords_bootstrap.py").write_text(bootstrap.read_text())
    (tmp_path / "lastwords.py").write_text("raise ImportError('No module named lastwords')")
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)']); " + JOB
    done = run(child, LASTWORDS="/anywhere", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (7, "1\nthe job ran\n")
    assert [line.partition(": No")[0] for line in done.stderr.splitlines()] == [
        "lastwords: not recording this job"
    ]


def test_a_job_that_closes_all_descriptors_keeps_its_files(record, tmp_path):
    ran = record(
        """
        import os
        os.closerange(3, 1024)
        files = [os.open(f"mine-{n}", os.O_RDWR | os.O_CREAT) for n in range(400)]
        os.abort()
        """
    )
    assert ran.returncode == -6
    assert {path.stat().st_size for path in tmp_path.glob("mine-*")} == {0}
    assert ran.crashed()["crash"]["signal"] == 6


def test_bootstrap_imports_only_the_standard_library_and_us(record):
    listing = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    unrecorded = run(listing).stdout.split()
    added = set(record(listing).stdout.split()) - set(unrecorded)
    assert added - set(sys.stdlib_module_names) == {"lastwords", "lastwords_bootstrap"}


def test_tracebacks_have_no_frame_of_ours(record):
    ran = record(
        """
        import sys
        from concurrent.futures import ProcessPoolExecutor
        def work(n):
            return 1 // n
        if __name__ == "__main__":
            with ProcessPoolExecutor(1) as pool:
                list(pool.map(work, [1, 0], chunksize=2))
        """
    )
    assert ran.returncode == 1
    assert "ZeroDivisionError" in ran.stderr
    assert "lastwords" not in ran.stderr


def test_a_failing_adapter_is_off_and_says_so_in_the_record(record):
    ran = record(
        """
        import sys, types
        from lastwords.record import after_import
        after_import.adapt(types.ModuleType("concurrent.futures.process"))
        print("went on")
        """
    )
    assert ran.stdout == "went on\n"
    (box,) = ran.boxes()
    assert any("adapter of concurrent.futures.process is off" in event["text"] for event in box["events"])


def test_functions_that_we_stand_around_can_be_sent_to_a_worker(record):
    ran = record(
        """
        import concurrent.futures, copy, multiprocessing, os, pickle, signal, sys

        if __name__ == "__main__":
            for one in (os.kill, os.killpg, os.execv, os._exit, sys.exit):
                assert pickle.loads(pickle.dumps(one)) is one and copy.copy(one) is one
            spawn = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
                assert pool.submit(os.kill, os.getpid(), 0).result() is None
            worker = spawn.Process(target=sys.exit, args=(3,))
            worker.start()
            worker.join()
            print(worker.exitcode)
        """
    )
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr


STACK = """
import ctypes, lastwords

class Stack(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

libc, stack = ctypes.CDLL(None), Stack()
assert lastwords.enable()
libc.sigaltstack(None, ctypes.byref(stack))  # nothing was imported since, which would have set it right
print(stack.size)
"""


def test_the_handler_has_its_own_stack_from_the_start(tmp_path):
    """On faulthandler's, which is small and in the heap, a process that was asked where it stands wrote over its own data.
    (Seen on an EPYC, where it has 16,880 bytes: "Segmentation fault" in the garbage collector, at the end)
    """
    done = run(STACK, LASTWORDS_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 128 << 10
