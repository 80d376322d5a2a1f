"""An extension finds its own state beyond repair, and says so to Python."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.fatal_record()
