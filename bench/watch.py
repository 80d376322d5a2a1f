"""What watching costs: the CPU of `lastwords run` itself while 64 workers of its job do nothing.

The clock on the wall is the peer: a ratio of 0.01 is one per cent of one core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from bench.result import Result

NAME = "watch"
WORKERS = 64
LIMIT = 0.01

JOB = """
    import os, sys
    import lastwords

    ready, said = os.pipe()
    for number in range(int(sys.argv[1])):
        if os.fork() == 0:
            with lastwords.item("idle", index=number):
                os.write(said, b".")
                sys.stdin.buffer.raw.read(1)  # nothing comes before the end
            os._exit(0)
    for _ in range(int(sys.argv[1])):
        os.read(ready, 1)
    print("ready", flush=True)
    sys.stdin.buffer.raw.read(1)
"""


def run(quick: bool) -> list[Result]:
    seconds = 5.0 if quick else 20.0
    return [
        measure(f"watching {WORKERS} idle workers", seconds),
        measure("the same with --hang-after 60", seconds, "--hang-after", "60"),
    ]


def measure(name: str, seconds: float, *options: str) -> Result:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "lastwords", "--home", home, "run", *options, "--"]
        job = [sys.executable, "-c", textwrap.dedent(JOB), str(WORKERS)]
        environment = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
        with subprocess.Popen(
            [*command, *job], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as watcher:
            assert watcher.stdout is not None
            watcher.stdout.readline()
            time.sleep(5.0)  # the last announcements are read, and everybody is known to be idle
            begun, used = time.monotonic(), cpu_seconds(watcher.pid)
            time.sleep(seconds)
            wall, cpu = time.monotonic() - begun, cpu_seconds(watcher.pid) - used
            watcher.communicate()
    return Result(name=name, ours=cpu * 1000, peer=wall * 1000, unit="ms", limit=LIMIT)


def cpu_seconds(pid: int) -> float:
    """Of all its threads, in nanoseconds exactly: /proc/PID/stat counts in hundredths of a second."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
