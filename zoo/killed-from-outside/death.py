"""Another process sends SIGKILL: an operator, a scheduler, a script that cleans up."""

import os
import signal
import subprocess


def die(item: int) -> None:
    subprocess.Popen(["sh", "-c", f"kill -KILL {os.getpid()}"])
    while True:
        signal.pause()
