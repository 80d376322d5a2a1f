"""Threads are started, one after the other, in a container that allows only so many."""

import threading


def die(item: int) -> None:
    never = threading.Event()
    while True:
        threading.Thread(target=never.wait, daemon=True).start()
