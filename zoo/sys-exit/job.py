"""Library code thinks that it is the main program, and calls sys.exit() in a worker."""

import multiprocessing
import sys


def work() -> None:
    sys.exit(3)


if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
