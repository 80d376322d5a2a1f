"""A process that was forked from Python and became another program is none of the job's Python processes."""

from __future__ import annotations

import os
import select
from pathlib import Path

from tests.watch.running import PATIENCE, leftovers, python, run

# With a function to call between fork and exec, subprocess must fork for real; pyspark starts its JVM like that.
LEAVES = """
    import subprocess, sys
    from subprocess import DEVNULL
    pipe = int(sys.argv[1])
    child = subprocess.Popen(["cat"], stdin=pipe, stdout=DEVNULL, stderr=DEVNULL, preexec_fn=lambda: None)
    print(child.pid)
"""


def test_a_program_that_the_job_leaves_behind_was_never_watched(tmp_path: Path) -> None:
    waits, lets_go = os.pipe()
    done = run(tmp_path, python(LEAVES, str(waits)), pass_fds=[waits])
    os.close(waits)
    assert (done.returncode, done.stderr) == (0, "")
    pidfd = os.pidfd_open(int(done.stdout))  # it lives, and may
    assert leftovers(tmp_path) == []
    os.close(lets_go)
    assert select.select([pidfd], [], [], PATIENCE)[0]
    os.close(pidfd)
