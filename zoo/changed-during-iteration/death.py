"""One thread adds to a dictionary while another one goes through it."""

import threading

labels = dict.fromkeys(range(8), "cat")


def die(item: int) -> None:
    is_inside, is_added = threading.Event(), threading.Event()
    threading.Thread(target=add, args=(item, is_inside, is_added), daemon=True).start()
    for _name, _label in labels.items():
        is_inside.set()
        is_added.wait()


def add(item: int, is_inside: threading.Event, is_added: threading.Event) -> None:
    is_inside.wait()
    labels[f"item {item}"] = "dog"
    is_added.set()
