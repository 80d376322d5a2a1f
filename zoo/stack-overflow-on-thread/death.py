"""The same recursion on a thread of Python's: the stack ends at a guard page, and few handlers get a word out."""

import threading

from zoo import native

extension = native.load()


def die(item: int) -> None:
    thread = threading.Thread(target=work_on_thread)
    thread.start()
    thread.join()


def work_on_thread() -> None:
    extension.stack_overflow()
