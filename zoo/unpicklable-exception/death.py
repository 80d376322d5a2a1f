"""An exception that is pickled, and cannot be made again on the other side: the pool breaks, though nobody died."""


class BadShard(Exception):
    def __init__(self, path: str, offset: int) -> None:
        super().__init__(f"{path} is damaged at byte {offset}")


def die(item: int) -> None:
    raise BadShard("shard-0017.bin", 4096)
