"""Nobody listens where the item's data should come from."""

import socket


def die(item: int) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, and never listening: nobody else can answer there
        socket.create_connection(reserved.getsockname())
