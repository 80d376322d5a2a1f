"""The process may use only so much CPU time (ulimit -t), and uses it up."""

import resource
import time


def die(item: int) -> None:
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + 1, used + 30))
    while True:
        sum(range(10_000))
