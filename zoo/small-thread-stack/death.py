"""A thread that was given 256 KiB of stack does what needs two MiB."""

import threading

from zoo import native

extension = native.load()


def die(item: int) -> None:
    threading.stack_size(256 << 10)
    thread = threading.Thread(target=work_on_thread)
    thread.start()
    thread.join()


def work_on_thread() -> None:
    extension.deep_tree()
