"""The item's own code raises."""


def die(item: int) -> None:
    raise ValueError(f"item {item} has a negative width")
