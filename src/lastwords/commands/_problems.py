"""What can go wrong at the command line. An error is a class: what happened, why, and what to type next."""

from __future__ import annotations

import shlex
from typing import IO, Any

import click

WRONG_USE = 2


class Problem(click.ClickException):
    """Shown as one line; ends with exit status 2."""

    exit_code = WRONG_USE

    def __init__(self, happened: str, *, reason: str = "", then: str = "") -> None:
        super().__init__(happened)
        self.reason = reason
        self.then = then

    def format_message(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        after = f" · try: {self.then}" if self.then else ""
        return f"{self.message}{reason}{after}"

    def show(self, file: IO[Any] | None = None) -> None:
        # Paths and arguments come from outside: no control character of theirs reaches the terminal.
        line = "".join(
            sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in self.format_message()
        )
        click.echo(f"lastwords: {line}", file=file, err=file is None)


class NothingToExplain(Problem):
    def __init__(self) -> None:
        super().__init__(
            "nothing to explain", then="lastwords explain DEATH_ID, or a log file, or --exit-code 139"
        )


class TwoStatuses(Problem):
    def __init__(self) -> None:
        super().__init__(
            "--exit-code and --signal say the same thing: give one", then="lastwords explain --help"
        )


class OneDeathAtATime(Problem):
    def __init__(self) -> None:
        super().__init__(
            "--why-not is about one death",
            reason="these are several",
            then="lastwords explain ONE --why-not CAUSE",
        )


class NotABox(Problem):
    def __init__(self, path: str, reason: str) -> None:
        hint = "give a death id, a .box, a core file, a log or --exit-code N"
        super().__init__(f"not a lastwords black box: {path}", reason=f"{reason}; {hint}")


class CannotRead(Problem):
    """`then` may have {} for the file."""

    def __init__(self, path: str, reason: str, then: str = "") -> None:
        name, file = ("standard input", "FILE") if path == "-" else (path, shlex.quote(path))
        super().__init__(f"cannot read {name}", reason=reason, then=then.format(file))


class NoSuchFile(Problem):
    def __init__(self, path: str) -> None:
        super().__init__(f"there is no file {path}, and no death here is called so", then="lastwords list")


class IsADirectory(Problem):
    def __init__(self, path: str) -> None:
        folder = shlex.quote(path.rstrip("/") or "/")
        reason = "give the logs in it, of one death"
        super().__init__(f"{path} is a directory", reason=reason, then=f"lastwords explain {folder}/*.log")


class NoSuchDeath(Problem):
    def __init__(self, name: str, dropped: int = 0) -> None:
        reason = (
            f"{dropped:,} older ones have been removed to make room, it may be one of them" if dropped else ""
        )
        super().__init__(f"no death here is called {name}", reason=reason, then="lastwords list")


class NoSuchDeathThere(Problem):
    def __init__(self, name: str, url: str) -> None:
        super().__init__(f"no death in {url} is called {name}", then=f"lastwords list --from {url}")


class PlaceAway(Problem):
    def __init__(self, url: str, reason: str, then: str) -> None:
        super().__init__(f"cannot read deaths from {url}", reason=reason, then=then)


class AmbiguousId(Problem):
    def __init__(self, name: str, ids: tuple[str, ...]) -> None:
        super().__init__(
            f"{name} fits more than one death", reason=", ".join(ids[:8]), then=f"lastwords show {ids[0]}"
        )


class NoCrashInIt(Problem):
    def __init__(self, name: str) -> None:
        reason = "nothing crashed in that process, so there are no registers and no stack to export"
        super().__init__(f"no minidump of {name}", reason=reason, then=f"lastwords show {name}")


class CannotWrite(Problem):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write {path}", reason=reason)


class NoSuchSignal(Problem):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no signal called {name}", then="lastwords explain --signal SIGSEGV")


class NoSuchCause(Problem):
    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no cause called {name}", reason=f"known: {', '.join(known)}")
