"""An extension that was built for another version of a library than the one that is loaded."""

from zoo import native

native.build("zooorphan")


def die(item: int) -> None:
    native.load("zooorphan")
