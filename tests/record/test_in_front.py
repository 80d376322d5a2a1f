"""Whoever else installs handlers, in whatever order and however the worker was started: ours writes first,
theirs still speaks, and the kernel sees the true fault. One table."""

from __future__ import annotations

import signal

import pytest

from zoo import native

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=f"needs {native.missing()}")

# What the parent does before the worker starts, what the worker does, and what is heard on stderr.
INSTALLERS = {
    "nobody": ("pass", "pass", ""),
    "faulthandler in the parent": (
        "import faulthandler; faulthandler.enable()",
        "pass",
        "Segmentation fault",
    ),
    "faulthandler in the worker": (
        "pass",
        "import faulthandler; faulthandler.enable()",
        "Segmentation fault",
    ),
    "faulthandler enabled twice": (
        "import faulthandler; faulthandler.enable()",
        "import faulthandler; faulthandler.enable()",
        "Segmentation fault",
    ),
    "signal.signal in the worker": ("pass", "import signal; signal.signal(signal.SIGSEGV, print)", ""),
    "a library from C in the worker": (
        "pass",
        "import ctypes, lastwords; ctypes.CDLL(None).signal(11, 0); lastwords.item('x').__enter__()",
        "",
    ),
    "faulthandler disabled, as pyspark does": (
        "import faulthandler; faulthandler.enable()",
        "import faulthandler; faulthandler.disable()",
        "",
    ),
}

PROGRAM = """
    import multiprocessing, sys
    def die():
        {worker}
        from zoo import native
        native.load().null_dereference()
    if __name__ == "__main__":
        {parent}
        context = multiprocessing.get_context(sys.argv[1])
        process = context.Process(target=die)
        process.start()
        process.join()
        print(process.exitcode)
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("installer", INSTALLERS)
def test_we_write_and_they_speak(record, start_method, installer):
    parent, worker, heard = INSTALLERS[installer]
    ran = record(PROGRAM.format(parent=parent, worker=worker), start_method)
    assert ran.stdout == f"-{int(signal.SIGSEGV)}\n"
    crash = ran.crashed()["crash"]
    assert (crash["code"], crash["address"], crash["steps_failed"]) == (1, 8, [])
    # A faulthandler that was enabled in the parent does not come along into a spawned process.
    speaks = heard and not (installer == "faulthandler in the parent" and start_method != "fork")
    assert ("Segmentation fault" in ran.stderr) == bool(speaks)


def test_a_process_that_c_code_forks_has_its_own_box(record):
    ran = record(
        """
        import ctypes, os
        from zoo import native
        extension = native.load()
        libc = ctypes.PyDLL(None)
        if libc.fork() == 0:
            extension.null_dereference()
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    assert ran.stdout == f"-{int(signal.SIGSEGV)}\n"
    parent, child = ran.boxes()
    assert parent["crash"] is None
    assert child["identity"]["parent"] == parent["identity"]["pid"]
    assert child["crash"]["address"] == 8


def test_a_handler_that_repairs_the_fault_is_left_to_it(record):
    """A JVM takes a SIGSEGV at its safe points, mends it and goes on. So must we."""
    ran = record(
        """
        import os, signal
        heard = []
        signal.signal(signal.SIGTRAP, lambda *_: heard.append("mended"))
        os.kill(os.getpid(), signal.SIGTRAP)
        print(heard)
        """
    )
    assert (ran.returncode, ran.stdout) == (0, "['mended']\n")
    assert ran.crashed()["crash"]["state"] == "handled"
