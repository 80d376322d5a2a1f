"""What the native scanner says of one file, as it says it."""

from __future__ import annotations

from typing import Literal

import msgspec

Because = Literal["baseline", "load", "call", "note", "silent"]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    extension: str
    because: Because
    functions: int = 0
    function: str | None = None
    from_: str | None = msgspec.field(name="from", default=None)

    @property
    def is_certain(self) -> bool:
        return self.because in {"baseline", "load"}


class Presumption(msgspec.Struct, frozen=True, kw_only=True):
    """A guard that asks for one thing and lets another run."""

    extension: str
    given: tuple[str, ...]
    """What it asks for."""
    function: str
    guard: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    architecture: str
    build_id: str | None = None
    needs: tuple[Need, ...] = ()
    dispatched: tuple[str, ...] = ()
    presumes: tuple[Presumption, ...] = ()
    gpu: tuple[str, ...] = ()
    asks: bool = False
    note: str | None = None


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """One of them is None."""

    report: Report | None = None
    problem: str | None = None


MANY = msgspec.json.Decoder(tuple[Scanned, ...])
ONE = msgspec.json.Decoder(Scanned)
