"""What the handler writes down, and that the death itself stays as it was."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.record.conftest import Record
from zoo import native

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=f"needs {native.missing()}")

DIES = """
    from zoo import native
    import lastwords
    extension = native.load()
    def inner():
        extension.{call}
    def outer():
        with lastwords.item("shard-17/00042", index=42):
            inner()
    outer()
"""


def die(record: Record, call: str):
    return record(DIES.format(call=call))


@pytest.mark.parametrize(
    ("call", "number", "code", "address", "function"),
    [
        ("null_dereference()", signal.SIGSEGV, 1, 8, "sum_values"),
        ("wild_pointer()", signal.SIGSEGV, 1, 0x5A5A5A5A5A58, "follow"),
        ("impossible_address()", signal.SIGSEGV, 128, 0, "follow"),
        ("trap()", signal.SIGILL, 2, None, "unreachable_state"),
        ("illegal_instruction('fma4')", signal.SIGILL, 2, None, "fma4"),
        ("integer_division()", signal.SIGFPE, 1, None, "divide"),
    ],
)
def test_a_fault_is_recorded_and_happens_all_the_same(record, call, number, code, address, function):
    died = die(record, call)
    assert died.returncode == -number
    box = died.crashed()
    crash = box["crash"]
    assert (crash["signal"], crash["code"]) == (number, code)
    # SIGILL and SIGFPE report the place of the instruction itself.
    assert crash["address"] == (crash["registers"]["rip"] if address is None else address)
    assert crash["state"] == "complete" and crash["steps_failed"] == []
    assert crash["on_alternate_stack"]
    assert died.autopsy()["frames"][0]["function"] == function
    assert box["live"]["current"]["index"] == 42
    assert box["live"]["current"]["key"] == "shard-17/00042"


def test_python_frames_are_those_of_the_moment(record):
    text = die(record, "null_dereference()").crashed()["python_text"]
    assert [line.split(" in ")[1] for line in text.splitlines() if " in " in line] == [
        "inner",
        "outer",
        "<module>",
    ]
    assert "program.py" in text


def test_the_native_stack_goes_back_to_the_start(record):
    report = die(record, "null_dereference()").autopsy()
    functions = [frame["function"] for frame in report["frames"]]
    assert functions[:4] == ["sum_values", "mean_of_record", "decode_record", "null_dereference"]
    assert functions[-1] == "_start"


def test_abort_keeps_its_sender_and_its_frames(record):
    died = die(record, "native_abort()")
    assert died.returncode == -signal.SIGABRT
    crash = died.crashed()["crash"]
    assert crash["code"] == -6 and crash["sender_pid"] == died.crashed()["identity"]["pid"]
    assert "check_invariant" in [frame["function"] for frame in died.autopsy()["frames"]]


def test_glibcs_own_words_are_kept(record):
    died = record(
        """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
        block = libc.malloc(5000)
        libc.free(block)
        libc.free(block)
        """
    )
    assert died.returncode == -signal.SIGABRT
    assert "free" in died.crashed()["crash"]["abort_message"]


def test_a_jump_to_nowhere_has_no_code_and_a_caller(record):
    died = record(
        """
        import ctypes
        ctypes.CFUNCTYPE(None)(0x10)()
        """
    )
    assert died.returncode == -signal.SIGSEGV
    crash = died.crashed()["crash"]
    assert crash["registers"]["rip"] == crash["address"] == 0x10
    assert crash["code_bytes"] == ""
    assert len(died.autopsy()["frames"]) > 5


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS]
)
def test_a_signal_that_was_sent_ends_it_with_its_sender_known(record, number):
    died = record(f"import os; os.kill(os.getpid(), {int(number)})")
    assert died.returncode == -number
    crash = died.crashed()["crash"]
    assert (crash["signal"], crash["code"]) == (number, 0)
    assert crash["sender_pid"] == died.crashed()["identity"]["pid"]


def test_the_kernel_sees_the_true_fault(record, tmp_path):
    """Most handlers end in raise(): the core then has si_code -6 and no address. Ours must not."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)\n"
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
        pattern = file.read().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip(f"core files go to {pattern}")
    died = record(limit + "from zoo import native; native.load().null_dereference()")
    (core,) = tmp_path.glob("core*")
    shown = subprocess.run(
        ["gdb", "-batch", "-ex", "p $_siginfo.si_code", "-ex", "p $_siginfo._sifields._sigfault.si_addr", "-ex", "bt 1",
         sys.executable, str(core)],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    assert died.returncode == -signal.SIGSEGV
    assert "= 1\n" in shown and "0x8" in shown and "sum_values" in shown


def test_each_register_says_what_it_points_at(record):
    pointed = die(record, "null_dereference()").crashed()["pointed"]
    assert pointed["rsp"]["mapping"] == "[stack]" and len(pointed["rsp"]["bytes"]) == 64
    assert "zoonative" in pointed["rip"]["mapping"] and pointed["rip"]["offset"] > 0
    assert "rdi" not in pointed  # null
