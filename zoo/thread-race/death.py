"""One thread takes a library's table away while another reads it: each item alone is well."""

import threading

from zoo import native

zooshared = native.load("zooshared")


def die(item: int) -> None:
    threading.Thread(target=refresh, daemon=True).start()
    zooshared.read_table()


def refresh() -> None:
    zooshared.replace_table()
