"""What CPU the process ran on and what that can do: the kernel's word about the host, and CPUID's to the process."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from lastwords.evidence.model import Cpu

LARGEST = 1 << 16
"""The first processors are enough: one entry is about 2 KB, and a host may have hundreds."""
LEAVES = ("leaf 1 ecx", "leaf 1 edx", "leaf 7 ebx", "leaf 7 ecx", "leaf 7 edx", "leaf 0x80000001 ecx")
"""The recorded words behind the first, which is the highest leaf; the last one is XCR0."""
WORDS = len(LEAVES) + 2
# Registers that the system must let programs use before these instructions work: bits of XCR0.
VECTORS, WIDE_VECTORS, TILES = 0x6, 0xE6, 0x60000


def this_host(cpuinfo: Path = Path("/proc/cpuinfo")) -> Cpu | None:
    try:
        with cpuinfo.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return None
    first = _fields(text.split("\n\n", 1)[0])
    flags = first.get("flags") or first.get("Features") or ""
    return Cpu(
        source=str(cpuinfo),
        architecture=platform.machine(),
        model=first.get("model name") or None,
        flags=tuple(sorted(flags.split())),
    )


def as_the_process_saw_it(host: Cpu | None, words: Sequence[int] | None) -> Cpu | None:
    """The host's CPU, corrected by what CPUID said inside the process; of another host, CPUID alone."""
    if words is None or len(words) != WORDS:
        return host
    offered, enabled = _offered(words[1:-1]), words[-1]
    usable = {name for name in offered if _needs(name) & enabled == _needs(name)}
    told = set(host.flags) if host is not None else set()
    others = told - {name for bits in _table().values() for name in bits}
    return Cpu(
        source="CPUID, as the process saw it",
        architecture="x86_64",
        model=host.model if host is not None else None,
        flags=tuple(sorted(others | usable)),
        withheld=tuple(sorted((told & {name for bits in _table().values() for name in bits}) - usable)),
        not_enabled=tuple(sorted(offered - usable)),
    )


@cache
def _table() -> dict[str, dict[str, int]]:
    """Bits of CPUID by the names of /proc/cpuinfo."""
    raw = Path(__file__).with_name("cpuid.json").read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, int]])


def _offered(words: Sequence[int]) -> set[str]:
    return {
        name
        for leaf, word in zip(LEAVES, words, strict=True)
        for name, bit in _table()[leaf].items()
        if word >> bit & 1
    }


def _needs(name: str) -> int:
    if name.startswith("avx512"):
        return WIDE_VECTORS
    if name.startswith("amx"):
        return TILES
    is_vector = name in ("avx", "avx2", "fma", "fma4", "f16c", "xop", "vaes", "vpclmulqdq")
    return VECTORS if is_vector else 0


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
