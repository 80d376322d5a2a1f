"""A launcher ends while its worker is at work; the worker, which looks for it now and then, gives up."""

import multiprocessing
import os
import time

fork = multiprocessing.get_context("fork")


def work(launcher: int, is_at_work) -> None:
    is_at_work.set()
    while os.getppid() == launcher:
        time.sleep(0.05)  # as gunicorn's and torch's workers do, which look every second or five
    os._exit(1)


def launch() -> None:
    is_at_work = fork.Event()
    fork.Process(target=work, args=(os.getpid(), is_at_work)).start()
    is_at_work.wait()
    os._exit(0)


if __name__ == "__main__":
    worker_ended, worker_lives = os.pipe()
    launcher = fork.Process(target=launch)
    launcher.start()
    launcher.join()
    os.close(worker_lives)
    os.read(worker_ended, 1)
