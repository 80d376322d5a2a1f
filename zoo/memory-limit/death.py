"""One item takes more memory than the container has."""


def die(item: int) -> None:
    rows = bytearray()
    while True:
        rows += bytes(b"x" * (64 << 20))
