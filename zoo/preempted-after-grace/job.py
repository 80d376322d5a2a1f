"""A scheduler tells the job to stop, waits, and kills all of it: the checkpoint took longer than the time of grace."""

import os
import signal

import lastwords


def save(*_: object) -> None:
    while True:
        signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, save)
    with lastwords.item("step-5", index=5):
        with open(os.environ["ZOO_SCHEDULER"], "w") as scheduler:
            scheduler.write("at work")
        while True:
            signal.pause()
