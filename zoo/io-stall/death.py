"""A file on a file system whose server takes the request and does not answer."""

import os


def die(item: int) -> None:
    with open(f"{os.environ['ZOO_DISK']}/data", "rb") as file:
        file.read()
