"""A worker that sleeps for ever where there is little CPU: it would not get on with more of it."""

import time


def die(item: int) -> None:
    time.sleep(10**6)
