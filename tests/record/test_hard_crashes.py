"""Deaths that leave other handlers without a word: no stack left, no thread of Python's, a fault in the handler."""

from __future__ import annotations

import signal

import pytest

from zoo import native

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=f"needs {native.missing()}")

OVERFLOWS = {
    "main thread": "extension.stack_overflow()",
    "Python thread": "t = threading.Thread(target=extension.stack_overflow); t.start(); t.join()",
    "thread of C": "extension.stack_overflow_on_c_thread()",
}


@pytest.mark.parametrize("where", OVERFLOWS)
def test_a_stack_overflow_is_recorded_with_both_ends_of_the_stack(record, where):
    died = record(f"import threading; from zoo import native; extension = native.load()\n{OVERFLOWS[where]}")
    assert died.returncode == -signal.SIGSEGV
    crash = died.crashed()["crash"]
    assert crash["state"] == "complete" and crash["on_alternate_stack"] and crash["steps_failed"] == []
    assert abs(crash["address"] - crash["registers"]["rsp"]) < 65536
    functions = [frame["function"] for frame in died.autopsy()["frames"]]
    assert functions.count("descend") > 100
    begun_by = {
        "main thread": "stack_overflow",
        "Python thread": "stack_overflow",
        "thread of C": "descend_on_thread",
    }
    assert begun_by[where] in functions


@pytest.mark.heavy
@pytest.mark.parametrize("where", OVERFLOWS)
def test_a_stack_overflow_in_a_dataloader_worker(record, where):
    died = record(
        f"""
        import threading
        from torch.utils.data import DataLoader
        from zoo import native
        extension = native.load()
        class Rows:
            def __len__(self):
                return 8
            def __getitem__(self, n):
                if n == 5:
                    {OVERFLOWS[where]}
                return n
        if __name__ == "__main__":
            list(DataLoader(Rows(), num_workers=2))
        """
    )
    box = died.crashed()
    assert (box["crash"]["signal"], box["live"]["current"]["index"]) == (signal.SIGSEGV, 5)
    assert box["crash"]["state"] == "complete"
    assert "descend" in [frame["function"] for frame in died.autopsy()["frames"]]


def test_threads_that_crash_together_leave_one_whole_record(record):
    died = record("from zoo import native; native.load().crash_on_many_threads()")
    assert died.returncode == -signal.SIGSEGV
    crash = died.crashed()["crash"]
    assert crash["state"] == "complete" and crash["address"] == 8
    assert died.autopsy()["frames"][0]["function"] == "sum_values"


def test_a_fault_inside_the_handler_costs_one_step(record):
    """The Python frames are damaged, as after a heap overrun: CPython's own dumper faults on them."""
    died = record(
        """
        import ctypes, sys
        from zoo import native
        extension = native.load()
        def victim():
            frame = sys._getframe()
            code = id(frame.f_code)
            # co_filename of this very function becomes a pointer to nowhere.
            offset = next(n for n in range(0, 400, 8)
                          if ctypes.c_void_p.from_address(code + n).value == id(frame.f_code.co_filename))
            ctypes.c_void_p.from_address(code + offset).value = 0x5A5A5A5A5A58
            extension.null_dereference()
        victim()
        """
    )
    assert died.returncode == -signal.SIGSEGV
    crash = died.crashed()["crash"]
    assert crash["steps_failed"] == ["python"]
    assert (crash["nested_step"], crash["nested_signal"]) == ("python", signal.SIGSEGV)
    assert (crash["state"], crash["address"]) == ("complete", 8)
    assert "threads" in crash["steps_done"]


def test_the_address_space_stays_flat_over_two_thousand_threads(record):
    died = record(
        """
        from zoo import native
        extension = native.load()
        def mapped():
            return sum(1 for _ in open("/proc/self/maps"))
        def threads(rounds):
            for _ in range(rounds):
                extension.start_c_threads()
        threads(20)  # glibc keeps some stacks for later: let it
        before = mapped()
        threads(125)
        print(mapped() - before)
        """
    )
    assert died.returncode == 0
    assert int(died.stdout) < 40


@pytest.mark.skipif(native.missing("zoothrows") is not None, reason=f"needs {native.missing('zoothrows')}")
def test_a_cpp_exception_is_recorded_with_its_type_and_words(record):
    died = record("from zoo import native; native.load('zoothrows').throw_uncaught()")
    assert died.returncode == -signal.SIGABRT
    crash = died.crashed()["crash"]
    assert crash["exception_type"] == "N7decoder14corrupt_headerE"
    assert crash["exception_what"] == "version 9 is not known"


def test_a_process_made_by_a_raw_clone_does_not_write_into_its_parents_box(record):
    died = record(
        """
        import ctypes, os
        from zoo import native
        extension = native.load()
        SYS_fork = 57
        if ctypes.PyDLL(None).syscall(SYS_fork) == 0:
            extension.null_dereference()
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    assert died.stdout == f"-{int(signal.SIGSEGV)}\n"
    parent, child = died.boxes()
    assert parent["crash"] is None and child["crash"]["address"] == 8


def test_a_crash_while_forking_is_recorded_in_the_child(record):
    """Fork hooks of other libraries run in the child too, and may crash there."""
    died = record(
        """
        import os
        from zoo import native
        extension = native.load()
        os.register_at_fork(after_in_child=extension.null_dereference)
        if os.fork() == 0:
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    assert died.stdout == f"-{int(signal.SIGSEGV)}\n"
    assert died.crashed()["identity"]["forked"]


def test_a_fatal_python_error_keeps_its_python_frames(record):
    """Before it aborts, CPython has taken faulthandler apart."""
    died = record(
        """
        import ctypes
        def broken_invariant():
            ctypes.pythonapi.Py_FatalError(b"an invariant is broken")
        broken_invariant()
        """
    )
    assert died.returncode == -signal.SIGABRT
    box = died.crashed()
    if "python" in box["crash"]["steps_failed"]:
        pytest.skip("this Python does not export the function behind faulthandler's")
    assert "broken_invariant" in box["python_text"]
