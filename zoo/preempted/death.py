"""A scheduler tells the job to stop, as it does to give the machine to another one."""

import os
import signal


def die(item: int) -> None:
    with open(os.environ["ZOO_SCHEDULER"], "w") as scheduler:
        scheduler.write("at work")
    while True:
        signal.pause()
