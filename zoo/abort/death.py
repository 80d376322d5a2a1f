"""Native code finds that something is wrong and calls abort()."""

from zoo import native

extension = native.load()


def die(item: int) -> None:
    extension.native_abort()
