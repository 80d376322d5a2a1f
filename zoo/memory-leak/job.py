"""Every item leaves a little behind: the worker grows until the container is full."""

import multiprocessing
import time

import lastwords

LEFT_BEHIND = 1 << 20


def work() -> None:
    seen = []
    for item in range(2000):
        with lastwords.item(f"shard-{item:04}", index=item):
            time.sleep(0.02)  # the work itself: a leak that ends in a moment leaves no curve to be told by
            seen.append(bytes([item % 256]) * LEFT_BEHIND)


if __name__ == "__main__":
    # No queue: a worker that is killed while it holds a queue's lock leaves the others waiting for ever.
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
