"""A C extension follows a null pointer, three frames below Python."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.null_dereference()
