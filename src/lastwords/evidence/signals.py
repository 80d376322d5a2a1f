"""Signals of Linux by number and name. The knowledge is data, in `signals.json`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    name: str
    family: str
    """`fault`: the CPU or kernel refused what the code did; `abort`: it gave up itself; `kill`: somebody asked.

    `limit`, `timer`, `pipe`: the kernel sent it, for what the program itself did or had set up.
    """
    means: str
    codes: dict[str, str] = {}


class _Table(msgspec.Struct, frozen=True):
    general_codes: dict[str, str]
    signals: tuple[Signal, ...]


@cache
def _table() -> _Table:
    return msgspec.json.decode(Path(__file__).with_name("signals.json").read_bytes(), type=_Table)


@cache
def _by_number() -> dict[int, Signal]:
    return {signal.number: signal for signal in _table().signals}


@cache
def _by_name() -> dict[str, Signal]:
    return {signal.name: signal for signal in _table().signals}


def name_of(number: int) -> str:
    known = _by_number().get(number)
    if known is not None:
        return known.name
    return f"SIGRTMIN+{number - 34}" if 34 <= number <= 64 else f"signal {number}"


def named(name: str) -> Signal | None:
    """The signal called `name`: with or without SIG, in any case, or its number."""
    text = name.strip().upper()
    if text.isascii() and text.isdigit() and len(text) < 4:
        return _by_number().get(int(text))
    return _by_name().get(text if text.startswith("SIG") else f"SIG{text}")


def family_of(name: str | None) -> str | None:
    known = _by_name().get(name) if name else None
    return known.family if known else None


def means(name: str) -> str | None:
    known = _by_name().get(name)
    return known.means if known else None


def code_name(signal: int, code: int) -> str | None:
    """What si_code says, e.g. SEGV_MAPERR. Codes of 0 and below, and SI_KERNEL, mean the same for all signals."""
    known = _by_number().get(signal)
    specific = known.codes.get(str(code)) if known else None
    return specific or _table().general_codes.get(str(code))
