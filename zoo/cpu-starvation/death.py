"""An item of a second and a half, in a container that gets a fifth of a CPU: it takes seven seconds and more."""

import time

WORK = 1.5


def die(item: int) -> None:
    until = time.process_time() + WORK
    while time.process_time() < until:
        pass
