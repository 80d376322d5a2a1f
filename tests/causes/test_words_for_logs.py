"""What a reader of a log is told: the sentence and the steps fit what the log says, not only its cause."""

from __future__ import annotations

import pytest

from lastwords.diagnosis import Diagnosis, explain
from lastwords.show import text

OBJC = (
    "objc[71]: +[NSNumber initialize] may have been in progress in another thread when fork() was called."
    " We cannot safely call it or ignore it in the fork() child process. Crashing instead.\n"
    "Process 'ForkPoolWorker-1' pid:71 exited with 'signal 6 (SIGABRT)'"
)
GLOG = (
    "*** SIGSEGV (@0x0) received by PID 47123 (TID 0x7fff7af4b000) stack trace: ***\n"
    "    @     0x7fff914f152a _sigtramp\n    @        0x108110de0 asio::do_complete\n    @        0x108073497 main\n"
)
FPE = (
    "*** SIGFPE (@0x7f2329804bc3) received by PID 3061 (TID 0x7f23); stack trace: ***\n"
    "    @     0x7f2329804bc3 log10f\nFloating point exception"
)


def told(log: str) -> tuple[Diagnosis, str]:
    found = explain(log)
    return found, " ".join(text.render(found).split())


@pytest.mark.parametrize(
    ("log", "cause", "has", "has_not"),
    [
        (
            "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.2",
            "library-conflict",
            "numpy<2",
            "OpenMP",
        ),
        (
            "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",
            "library-conflict",
            "have one OpenMP",
            "numpy<2",
        ),
        (
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
            "missing-dependency",
            "cudart 11.0 is what that extension was built for",
            "libgl1",
        ),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
            "missing-dependency",
            "opencv-python-headless",
            "CUDA",
        ),
        (
            "ImportError: /lib64/libm.so.6: version `GLIBC_2.29' not found",
            "missing-dependency",
            "manylinux",
            "Spark",
        ),
        (
            "OSError: [Errno 116] Stale file handle: '/shared/cache/a.lock'",
            "file-truncated",
            "removed or replaced on the file server",
            "sha256sum",
        ),
        (
            OBJC,
            "fork-deadlock",
            "OBJC_DISABLE_INITIALIZE_FORK_SAFETY",
            "for ever",
        ),
        (
            "Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding",
            "fatal-python-error",
            "Python could not start",
            "reference count",
        ),
        (
            FPE,
            "arithmetic-fault",
            "floating-point trap",
            "whole numbers",
        ),
        (
            "traps: python3[1218] trap invalid opcode ip:7f26ae925400 sp:7fff95 error:0 in libdot.so[7f26ac+315000]",
            "isa-mismatch",
            "lastwords scan",
            "rebuild",
        ),
        (
            "n1:20:31 [0] misc/socket.cc:48 NCCL WARN Connect to 10.1.0.2<40111> failed : No route to host",
            "network-failure",
            "NCCL_SOCKET_IFNAME",
            "tenacity",
        ),
        (
            "RuntimeError: can't start new thread\nIt works with docker run --privileged",
            "seccomp",
            "older than its image",
            "ausearch",
        ),
        (
            "The TensorFlow library was compiled to use SSE4.1 instructions, but these aren't available.",
            "isa-mismatch",
            "grep -cw sse4_1",
            "ctypes",
        ),
        (
            "torch.distributed: Process 27 got signal: 1\nHangup",
            "external-kill",
            "nohup setsid",
            "dmesg",
        ),
        (
            "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            "version-mismatch",
            "driver is older",
            "Dask",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch",
            "version-mismatch",
            "updated under a running system",
            "pip list",
        ),
        (
            "struct.error: 'i' format requires -2147483648 <= number <= 2147483647",
            "unpicklable",
            "larger than 2 GB",
            "__reduce__",
        ),
        (
            "Memory access fault by GPU node-6 (Agent handle: 0x50) on address 0x7f5e50c00000. Reason: Unknown.",
            "cuda-illegal-access",
            "AMD_SERIALIZE_KERNEL",
            "CUDA_LAUNCH_BLOCKING",
        ),
        (
            "OSError: libgomp.so.1: cannot open shared object file: No such file or directory",
            "missing-dependency",
            "apt-get install libgomp1",
            "brew",
        ),
        (
            "Error: Runtime exited with error: signal: killed",
            "out-of-memory",
            "--memory-size",
            "DataLoader",
        ),
        (
            "Process 'ForkPoolWorker-4' pid:31 exited with 'signal 11 (SIGSEGV)'\n*** multi-threaded process forked ***",
            "fork-deadlock",
            "could not go on as a child",
            "for ever",
        ),
        (
            "OSError: [Errno 23] Too many open files in system",
            "too-many-open-files",
            "file-nr",
            "ulimit",
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate 2.98GiB on device ordinal 0",
            "gpu-out-of-memory",
            "XLA_PYTHON_CLIENT_PREALLOCATE",
            "PYTORCH",
        ),
        (
            GLOG,
            "null-pointer",
            "in asio::do_complete",
            "made while the program ran",
        ),
    ],
)
def test_the_steps_are_about_what_the_log_says(log: str, cause: str, has: str, has_not: str):
    found, words = told(log)
    assert found.best is not None and found.best.id == cause
    assert has in words
    assert has_not not in words


def test_a_barriers_timeout_is_no_limit_of_the_batch_system():
    """`timeout=0:30:00` looks like a column of sacct."""
    log = (
        "slurmstepd: error: *** STEP 37.0 ON node5 CANCELLED AT 2021-03-15T17:50:21 ***\n"
        "slurmstepd: error: *** JOB 37 ON node5 CANCELLED AT 2021-03-15T18:00:44 DUE TO PREEMPTION ***\n"
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0 (timeout=0:30:00)\n"
    )
    found, _ = told(log)
    assert found.best is not None and found.best.id == "preemption"
    assert "time-limit" not in {one.id for one in found.causes}
    sacct = told("37.batch      python   TIMEOUT      0:15")[0]
    assert sacct.best is not None and sacct.best.id == "time-limit"


def test_a_frame_of_pythons_own_is_not_called_your_code():
    frames = '  File "/usr/lib/python3.11/threading.py", line 992, in start\n    _start_new_thread()\n'
    log = f"Traceback (most recent call last):\n{frames}RuntimeError: can't start new thread\n"
    assert "at threading.py:992" in told(log)[1]
    mine = '  File "/srv/train.py", line 7, in fit\n    pool.start()\n'
    assert "your code train.py:7" in told(log.replace(frames, mine + frames))[1]


def test_a_variable_that_is_exported_is_no_hint_at_overclocking():
    found, _ = told("export OMP_NUM_THREADS=1\npython train.py\nSegmentation fault (core dumped)\n")
    assert "hardware-hint" not in {one.kind for one in found.evidence.mentions or ()}
    memory = told("Segmentation fault; the machine runs with an EXPO profile, overclocked\n")[0]
    assert "hardware-hint" in {one.kind for one in memory.evidence.mentions or ()}
