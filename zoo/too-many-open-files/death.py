"""Every file that was opened is kept open, until there may be no more."""


def die(item: int) -> None:
    kept = []
    while True:
        kept.append(open(__file__))  # noqa: SIM115 (that it stays open is the death)
