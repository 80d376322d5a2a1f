"""What a scan says of one library: fields are part of the published JSON, so they stay."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "will-crash", "may-crash"]
WORST_FIRST: tuple[Verdict, ...] = ("will-crash", "may-crash", "ok")


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """`needs` runs without a CPUID guard, `dispatched` behind one; both in /proc/cpuinfo's words."""

    path: str
    package: str | None = None
    version: str | None = None
    architecture: str = "x86_64"
    needs: tuple[str, ...] = ()
    dispatched: tuple[str, ...] = ()
    verdict: Verdict = "ok"
    missing: tuple[str, ...] = ()
    why: str = ""
    level: str | None = None
    """The smallest of x86-64-v1 to v4 that covers `needs`; None where none does."""
    gpu: tuple[str, ...] = ()
    """What its CUDA kernels were built for: `sm_90`, `compute_90` (PTX, which newer GPUs compile)."""
